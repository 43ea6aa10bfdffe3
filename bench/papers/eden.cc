// Eden (NSDI 2025).
#include "bench/papers/papers.h"
#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

json app(const char* name, const char* configuration, unsigned near) {
  return {{"app", name}, {"configuration", configuration}, {"near", near}};
}
json in_apps(const char* name, const char* configuration, unsigned near) {
  return merged(app(name, configuration, near), {{"transport", "tcp"}});
}
json kernel(const char* workload, unsigned threads) {
  return {{"configuration", "kernel alone"}, {"workload", workload}, {"threads", threads}};
}
const json kPaged = {{"configuration", "paged"}};
constexpr const char* kKernelAlone = "bench threads --no-zram --threads 1,2 --size SIZE --budget 60";
constexpr const char* kSort =
    "bench all --apps psrs_sort --configurations far,hinted,traced,'zram swap' --shares "
    "10,100 --size SIZE";

}  // namespace

std::vector<Figure> eden() {
  return {
      {.id = "eden-1",
       .measured = "rate of faults on zero pages, map, unmap and write-protect by cores, through the kernel",
       .stated =
           "at most 350K faults/s on one userfaultfd, 12 % of 3M pages/s of a 100 Gbit/s card (2.2); rest plot only",
       .ways = {{"kernel", kKernelAlone}},
       .ratios = {goal("1 one: faults mapped through one userfaultfd, 2 threads over 1", "per_s", unstated(),
                       kernel("fault and copy", 2))
                      .over("per_s", {{"threads", 1}}),
                  goal("1 each: faults of 2 threads, a userfaultfd each over one for both", "per_s", unstated(),
                       kernel("fault and copy, a userfaultfd each", 2))
                      .over("per_s", {{"workload", "fault and copy"}})},
       .differs = "2 cores, so nothing of the paper's curves to many cores; faults arrive as signals, not as messages"},
      {.id = "eden-2",
       .measured = "code locations behind 95 % of the faults of 22 programs at 10 % near",
       .stated = "12 at the median, under 32 in all; lines of own code mostly under 10 (2.3)",
       .ways = {{"trace",
                 "trace --local 10% --out OUT -- apps/"
                 "{analytics,gups,cross_sections,pagerank,psrs_sort,checksum_scan} --size SIZE"}},
       .ratios = {goal("2 {run}: lines behind 95 % of the faults", "coverage_places", unstated(" lines"),
                       {{"way", "trace"}})},
       .differs = "applications of bench/apps, which are small, in place of 22 programs of others: nothing stands "
                  "beside the median of 12; farside trace takes any program"},
      {.id = "eden-T1",
       .measured = "hints of four programs: lines, share of the faults that they cover, best gain over Fastswap",
       .stated = "web front end 4 hints, over 99 %, 178 %; memcached 2, over 99 %, 104 %; sort 6, over 99 %, 19.4 %; "
                 "DataFrame 11, 97.3 %, 37 %",
       .ways = {{"sort", kSort},
                {"front end",
                 "bench all --apps web_frontend --configurations far,hinted,traced --shares 10 --size SIZE"}},
       .ratios = {goal("T1 web: web front end, hints", "hints", stated(4, " hints"), app("web_frontend", "traced", 10)),
                  goal("T1 web%: web front end, faults at lines with hints", "coverage", stated(99, "%"),
                       app("web_frontend", "traced", 10))
                      .times(100),
                  goal("T1 sort: sort, hints", "hints", stated(6, " hints"), app("psrs_sort", "traced", 10)),
                  goal("T1 sort%: sort, faults at lines with hints", "coverage", stated(99, "%"),
                       app("psrs_sort", "traced", 10))
                      .times(100)},
       .differs = "gains are with eden-6, eden-7 and eden-11; coverage in the paper is of the accesses that fault"},
      {.id = "eden-6",
       .measured = "DataFrame all near and by near memory (31 GB); AIFM's web front end of 26 GB, also with entries of "
                   "1,600 B, by near memory",
       .stated =
           "DataFrame all near 82 s, natively 73; at 22 % near basic hints 4 times native time, with batches 2.9, "
           "with read-ahead 1.75, Fastswap 2.7, AIFM 1.67. Front end at 40 %: Eden 178 % over Fastswap; at 4 %: "
           "43 and 10.7 KOPS; AIFM all near 10.6 % less (5.3.1, 5.3.2)",
       .ways = {{"native", "apps/taxi --way plain --size SIZE"},
                {"paged", "run --quiet --local {22%,100%} --far TCP -- apps/taxi --way plain --size SIZE"},
                {"hinted", "run --quiet --local {22%,100%} --far TCP -- apps/taxi --way plain --hints on --size SIZE"},
                {"front end",
                 "bench apps --apps web_frontend --transports tcp --shares 40,100 --configurations "
                 "paged,hinted,objects,'zram swap' --size SIZE"}},
       .ratios = {goal("6-1 all: taxi, hinted, all near, time over native", "run_s", stated(82 / 73.),
                       {{"way", "hinted"}, {"run", "100%"}})
                      .over("run_s", {{"way", "native"}, {"run", nullptr}}),
                  goal("6-2 hint: taxi, hinted, 22 % near, time over native", "run_s", stated(1.75),
                       {{"way", "hinted"}, {"run", "22%"}})
                      .over("run_s", {{"way", "native"}, {"run", nullptr}}),
                  goal("6-2 page: taxi, paged, 22 % near (there Fastswap), time over native", "run_s", stated(2.7),
                       {{"way", "paged"}, {"run", "22%"}})
                      .over("run_s", {{"way", "native"}, {"run", nullptr}}),
                  goal("6-3 40%: front end, hinted over paged, 40 % near, requests/s", "operations_per_s", stated(2.78),
                       in_apps("web_frontend", "hinted", 40))
                      .over("operations_per_s", kPaged),
                  goal("6-3 swap: front end, hinted over kernel swap on zram, 40 % near, requests/s",
                       "operations_per_s", unstated(), in_apps("web_frontend", "hinted", 40))
                      .over("operations_per_s", {{"configuration", "zram swap"}, {"transport", nullptr}}),
                  goal("6-3 obj: front end, objects over hinted (there AIFM over native), all near, requests/s",
                       "operations_per_s", stated(0.894), in_apps("web_frontend", "objects", 100))
                      .over("operations_per_s", {{"configuration", "hinted"}})},
       .differs =
           "generated rides and other queries; hints are one kind here, with and without; Farside's own paging in "
           "place of Fastswap; entries of 1,600 B (plot only) are not an option"},
      {.id = "eden-7",
       .measured = "memcached, GET only, 30M items of 536 B, Zipf 1.0, by near memory; faults/s",
       .stated =
           "10 % near: 29.4 % of its throughput with all near, Fastswap 14.4 % (104 % more); 836K and 312K faults/s "
           "(5.3.3)",
       .ways = {{"cache",
                 "bench apps --apps cache --transports tcp --configurations paged,hinted,'zram swap' --shares 10 "
                 "--size SIZE"}},
       .ratios = {goal("7 %: hinted, 10 % near, of native", "of_native", stated(29.4, "%"),
                       in_apps("cache", "hinted", 10)),
                  goal("7 page%: paged, 10 % near (there Fastswap), of native", "of_native", stated(14.4, "%"),
                       in_apps("cache", "paged", 10)),
                  goal("7 hint: hinted over paged, 10 % near, requests/s", "operations_per_s", stated(2.04),
                       in_apps("cache", "hinted", 10))
                      .over("operations_per_s", kPaged),
                  goal("7 swap: hinted over kernel swap on zram, 10 % near, requests/s", "operations_per_s", unstated(),
                       in_apps("cache", "hinted", 10))
                      .over("operations_per_s", {{"configuration", "zram swap"}, {"transport", nullptr}})},
       .differs = "a program of bench/apps that speaks memcached's protocol, clients in the same process, Zipf 0.99, "
                  "10 % SET and DELETE, values of 16 to 1024 B"},
      {.id = "eden-8",
       .measured =
           "(a) write-protect and unmap in batches of 16, (b) fetches in order by cores without eviction, (c) with "
           "eviction, (d) with read-ahead",
       .stated =
           "(a) 5.4 to 6.6 and 3.7 to 5.7 times Linux; (b) near 2M pages/s, 38 to 88 % above Fastswap (5.4); rest "
           "plot only",
       .ways = {{"kernel", kKernelAlone},
                {"paging", "bench paging --configurations 'shm,tcp,shm pages,tcp pages,zram swap' --size SIZE"}},
       .ratios = {goal("8a drop: pages dropped a second, 256 a call over 1", "pages_per_s", unstated(),
                       kernel("drop 256 pages", 2))
                      .over("pages_per_s", {{"workload", "drop 1 page"}}),
                  goal("8c swap: reads in order with eviction, kernel swap on zram over tcp, us", "us", unstated(),
                       {{"configuration", "zram swap"}, {"workload", "sequential read"}, {"threads", 1}})
                      .over("us", {{"configuration", "tcp"}}),
                  goal("8d 2M: the same over tcp, pages of 4 KiB over windows of 2 MiB, us", "us", unstated(),
                       {{"configuration", "tcp pages"}, {"workload", "sequential read"}, {"threads", 1}})
                      .over("us", {{"configuration", "tcp"}})},
       .differs = "256 adjacent pages, dropped by madvise, not 16 scattered ones; 2 cores; every measurement evicts"},
      {.id = "eden-9",
       .measured = "flame graph of memcached's faults, half GET and half SET",
       .stated = "2 main locations, on the paths of GET and SET (A.2)",
       .ways = {{"trace", "trace --local 10% --out OUT -- apps/{cache,kv_server} --size SIZE"}},
       .ratios = {goal("9 {run}: lines behind 95 % of the faults", "coverage_places", unstated(" lines"),
                       {{"way", "trace"}})},
       .differs = "two caches of bench/apps in place of memcached; the flame graph is OUT/flame.svg"},
      {.id = "eden-10",
       .measured = "flame graph of DataFrame's faults, 9 queries",
       .stated = "23 locations make 95 % of the faults, the top 3 two thirds (5.2)",
       .ways = {{"trace", "trace --local 10% --out OUT -- apps/taxi --way plain --repeat 1 --size SIZE"}},
       .ratios = {goal("10: lines behind 95 % of the faults of taxi", "coverage_places", unstated(" lines"),
                       {{"way", "trace"}})},
       .differs = "loops over columns in place of the library DataFrame; the flame graph is OUT/flame.svg"},
      {.id = "eden-11",
       .measured = "parallel sort of 3 billion integers, 21 GB, 10 cores, by near memory",
       .stated = "all near 17.5 % slower than native; at 10 % near 19.4 % less time than Fastswap (A.4)",
       .ways = {{"sort", kSort}},
       .ratios = {goal("11 all: hinted, all near, of native", "of_native", stated(100 / 1.175, "%"),
                       app("psrs_sort", "hinted", 100)),
                  goal("11 hint: hinted over paged (there Fastswap), 10 % near, keys/s", "operations_per_s",
                       stated(1 / 0.806), app("psrs_sort", "hinted", 10))
                      .over("operations_per_s", {{"configuration", "far"}}),
                  goal("11 swap: hinted over kernel swap on zram, 10 % near, keys/s", "operations_per_s", unstated(),
                       app("psrs_sort", "hinted", 10))
                      .over("operations_per_s", {{"configuration", "zram swap"}, {"transport", nullptr}})},
       .differs = "64-bit keys, 2 threads, over shared memory; Farside's own paging in place of Fastswap"}};
}

}  // namespace farside::bench::papers
