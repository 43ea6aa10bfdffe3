// AIFM (OSDI 2020).
#include "bench/papers/papers.h"
#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

json over_tcp(const json& members) { return merged(members, {{"transport", "tcp"}}); }
json lines(const char* configuration, unsigned fibers) {
  return over_tcp({{"configuration", configuration}, {"fibers", fibers}});
}
json front_end(const char* configuration, unsigned near) {
  return over_tcp({{"app", "web_frontend"}, {"configuration", configuration}, {"near", near}});
}
json map(double exponent) {
  return over_tcp({{"configuration", "farside::hash_map"}, {"fibers", 64}, {"exponent", exponent}});
}
const json kPagedMap = {{"configuration", "std::unordered_map, paged"}};
const json kNativeMap = {{"configuration", "std::unordered_map"}, {"transport", "native"}, {"fibers", 0}};
const json kSwapOfLines = {{"configuration", "threads"}, {"transport", "zram swap"}};

}  // namespace

std::vector<Figure> aifm() {
  return {
      {.id = "aifm-1",
       .measured = "reads of remote objects of 64 B and 4 KiB by green threads on up to 4 cores",
       .stated = "64 B: 3,975K accesses/s, Fastswap 582K (6.8 times); 4 KiB: 1,059K, 582K (1.81 times) (1)",
       .ways = {{"lines", "bench objects --suites fibers --size SIZE"}},
       .ratios = {goal("1 64B: objects of 64 B over paging, 64 fibers, reads/s", "reads_per_s", stated(6.8),
                       lines("objects", 64))
                      .over("reads_per_s", {{"configuration", "pages, no hints"}}),
                  goal("1 4K: objects of 4 KiB over paging, 64 fibers, reads/s", "reads_per_s", stated(1.81),
                       lines("objects of 4 KiB", 64))
                      .over("reads_per_s", {{"configuration", "pages, no hints"}}),
                  goal("1 swap: objects of 64 B over kernel swap on zram, 64 threads there, reads/s", "reads_per_s",
                       unstated(), lines("objects", 64))
                      .over("reads_per_s", kSwapOfLines)},
       .differs = "one core and loopback TCP in place of 4 cores and 25 Gbit/s; Farside's paging is the peer in place "
                  "of Fastswap, kernel swap has no network"},
      {.id = "aifm-2",
       .measured = "one swap-in from an SSD by phase",
       .stated = "device 6 us; Linux over 15 us, of which 11.7 us spin; AIFM 6.8 us (3)",
       .ways = {{"file", "bench file --no-programs --size SIZE --configurations 'far file,kernel swap'"}},
       .ratios = {goal("2: random read, kernel swap over far memory in a file, us", "us", stated(15 / 6.8),
                       {{"configuration", "kernel swap"}, {"workload", "random read"}, {"threads", 1}})
                      .over("us", {{"configuration", "far file"}})},
       .differs = "paging to a file in place of AIFM's objects on a device; the paper's ratio is derived from 15 and "
                  "6.8 us; no phases"},
      {.id = "aifm-6",
       .measured = "web front end: 32 look-ups in a hash table of 10 GB and one element of 8 KB of 16 GB, AES and "
                   "Snappy, Zipf 0.8; (a) p90 by load at 19 % near, (b) throughput by near memory, (c) miss rates",
       .stated =
           "at 19 %: Fastswap 19K requests/s, non-temporal 370K (20 times, 84 % of local), temporal 140K; at 5 %: "
           "30 % of local, misses of 52 % of the look-ups and 89 % of the elements (8.1.1)",
       .ways = {{"front end",
                 "bench apps --apps web_frontend --transports tcp --configurations paged,objects,hybrid,'zram swap' "
                 "--shares 5,19 --size SIZE"}},
       .ratios = {goal("6a obj: objects over paging, 19 % near, requests/s", "operations_per_s", stated(20),
                       front_end("objects", 19))
                      .over("operations_per_s", {{"configuration", "paged"}}),
                  goal("6a hyb: hybrid over paging, 19 % near, requests/s", "operations_per_s", stated(20),
                       front_end("hybrid", 19))
                      .over("operations_per_s", {{"configuration", "paged"}}),
                  goal("6a swap: objects over kernel swap on zram, 19 % near, requests/s", "operations_per_s",
                       unstated(), front_end("objects", 19))
                      .over("operations_per_s", {{"configuration", "zram swap"}, {"transport", nullptr}}),
                  goal("6a %: objects, 19 % near, of native", "of_native", stated(84, "%"), front_end("objects", 19)),
                  goal("6b %: objects, 5 % near, of native", "of_native", stated(30, "%"), front_end("objects", 5)),
                  goal("6c: objects, 5 % near, misses a request of 33 accesses", "misses", unstated(" misses"),
                       front_end("objects", 5))
                      .over("operations")},
       .differs =
           "peak throughput of a closed loop, not by load; AES-CTR in place of CBC; misses are not counted "
           "by structure; the paper's peer is Fastswap; native are std types, the paper's local run are AIFM's own"},
      {.id = "aifm-7",
       .measured = "analysis of taxi rides on C++ DataFrame, 31 GB, offload on and off, by near memory",
       .stated = "at 3.2 % near: 78 % of local throughput, Fastswap 20 %; over 95 % from 20 % near on (8.1.2)",
       .ways = {{"native", "apps/taxi --way plain --size SIZE"},
                {"paged", "run --quiet --local 3.2% --far TCP -- apps/taxi --way plain --size SIZE"},
                {"near", "run --quiet --local 3.2% --far TCP -- apps/taxi --way near --size SIZE"},
                {"server", "run --quiet --local 3.2% --far TCP -- apps/taxi --way server --size SIZE"}},
       .ratios = {goal("7 off: 3.2 % near, offloaded, of native", "run_s", stated(78, "%"), {{"way", "native"}})
                      .over("run_s", {{"way", "server"}})
                      .times(100),
                  goal("7 page: 3.2 % near, paged loops (there Fastswap), of native", "run_s", stated(20, "%"),
                       {{"way", "native"}})
                      .over("run_s", {{"way", "paged"}})
                      .times(100),
                  goal("7 near: 3.2 % near, data frame without offload, of native", "run_s", unstated("%"),
                       {{"way", "native"}})
                      .over("run_s", {{"way", "near"}})
                      .times(100)},
       .differs = "generated rides, and queries of its own on Farside's data frame; at least 8 MiB are near"},
      {.id = "aifm-8",
       .measured = "the same, gain in throughput of each offloaded operation",
       .stated = "Copy 18 to 38 %, Shuffle 2.9 to 13 %, Aggregate 4.5 to 12 % of the whole program (8.1.2)",
       .ways = {{"near", "run --quiet --local 3.2% --far TCP -- apps/taxi --way near --size SIZE"},
                {"server", "run --quiet --local 3.2% --far TCP -- apps/taxi --way server --size SIZE"}},
       .ratios = {goal("8 copy: time of a filter that copies, near over offloaded", "filter_99_ms", unstated(),
                       {{"way", "near"}})
                      .over("filter_99_ms", {{"way", "server"}}),
                  goal("8 shuf: time of a gather, near over offloaded", "gather_ms", unstated(), {{"way", "near"}})
                      .over("gather_ms", {{"way", "server"}}),
                  goal("8 aggr: time of an aggregate, near over offloaded", "aggregate_ms", unstated(),
                       {{"way", "near"}})
                      .over("aggregate_ms", {{"way", "server"}})},
       .differs = "times of single queries; the paper states what each operation gains for the whole program"},
      {.id = "aifm-9",
       .measured = "look-ups in a hash table of 10 GB by Zipf's exponent, half of it near",
       .stated =
           "uniform: 17M/s, Fastswap 0.54M (30 times), local 53M; at 0.8: 61 times Fastswap, and as local (8.2.1)",
       .ways = {{"map", "bench objects --suites map --local 50% --size SIZE"}},
       .ratios = {goal("9 s=0: uniform, hash_map over a paged map, 64 fibers, look-ups/s", "lookups_per_s", stated(30),
                       map(0))
                      .over("lookups_per_s", kPagedMap),
                  goal("9 s=.8: exponent 0.8, hash_map over a paged map, 64 fibers, look-ups/s", "lookups_per_s",
                       stated(61), map(0.8))
                      .over("lookups_per_s", kPagedMap),
                  goal("9 % s=0: uniform, hash_map, of native", "lookups_per_s", stated(100 * 17 / 53., "%"), map(0))
                      .over("lookups_per_s", kNativeMap)
                      .times(100),
                  goal("9 % .8: exponent 0.8, hash_map, of native", "lookups_per_s", stated(100, "%"), map(0.8))
                      .over("lookups_per_s", kNativeMap)
                      .times(100)},
       .differs = "pairs of 256 B, of which a page holds 16 (there 128); one core; Farside's paging is the peer in "
                  "place of Fastswap; native is std::unordered_map, there AIFM's own table"},
      {.id = "aifm-10",
       .measured = "the same table, uniform keys: (a) by miss rate, (b) by threads at 80 % misses",
       .stated = "(a) 53M/s without misses, 10M near 100 % misses; (b) grows up to 160 threads (8.2.1)",
       .ways = {{"lines", "bench objects --suites fibers --local {5%,20%,100%} --size SIZE"}},
       .ratios = {goal("10a: objects, 5 % near, of the rate with all near", "reads_per_s", stated(1000 / 53., "%"),
                       merged(lines("objects", 64), {{"run", "5%"}}))
                      .over("reads_per_s", {{"run", "100%"}})
                      .times(100),
                  goal("10b: objects, 20 % near, 64 fibers over 1", "reads_per_s", unstated(),
                       merged(lines("objects", 64), {{"run", "20%"}}))
                      .over("reads_per_s", {{"fibers", 1}})},
       .differs = "random reads of objects of 64 B in place of look-ups; fibers on one core"},
      {.id = "aifm-11",
       .measured = "Snappy over far arrays: compress 16 x 1 GB, decompress 30 x 0.5 GB, in order",
       .stated = "plot only (AIFM about as local at every share)",
       .reason = "no program here compresses far arrays as a stream; web_frontend compresses elements one by one"},
      {.id = "aifm-12",
       .measured = "(a) deref of a local object that is not in the processor's caches, (b) of a remote one, p90 cycles",
       .stated =
           "(a) 489 cycles, unique_ptr 570; in L1 a quarter of its latency and half of its throughput; (b) Fastswap "
           "23,712, 64 B 18,582, 4 KiB 27,183 (8.3.1)",
       .ways = {{"near", "bench objects --suites near"},
                {"misses", "bench objects --suites misses --size SIZE"},
                {"pages", "bench paging --configurations tcp --size SIZE"}},
       .ratios = {goal("12a far: chase through 128 MB, deref over unique_ptr, ns", "ratio", stated(489 / 570.),
                       {{"case", "chase through 128 MB"}}),
                  goal("12a L1: 64 hot objects, deref over unique_ptr, ns", "ns", stated(2),
                       {{"case", "deref, scope hoisted"}})
                      .over("ns", {{"case", "std::unique_ptr"}}),
                  goal("12b 64B: a miss, paging over an object of 64 B, us", "median_us", stated(23712 / 18582.),
                       {{"way", "pages"}, {"workload", "random read that misses"}})
                      .over("line_us", {{"way", "misses"},
                                        {"suite", "misses"},
                                        {"transport", "tcp"},
                                        {"workload", nullptr},
                                        {"configuration", nullptr}}),
                  goal("12b 4K: a miss, paging over an object of 4 KiB, us", "median_us", stated(23712 / 27183.),
                       {{"way", "pages"}, {"workload", "random read that misses"}})
                      .over("page_us", {{"way", "misses"},
                                        {"suite", "misses"},
                                        {"transport", "tcp"},
                                        {"workload", nullptr},
                                        {"configuration", nullptr}})},
       .differs =
           "medians in place of p90, loopback TCP on both sides (Fastswap: RDMA); ratios derived from the cycles"},
      {.id = "aifm-13",
       .measured = "computation between reads of 4 KB in order: when far memory is as fast as local",
       .stated = "AIFM about as local from 1.2 us on, Fastswap from about 50 us on (8.3.2)",
       .ways = {{"native", "apps/checksum_scan --passes 2 --work-ns {0,1200,10000,50000} --size SIZE"},
                {"far",
                 "run --quiet --local 25% --far TCP -- apps/checksum_scan --passes 2 --work-ns "
                 "{0,1200,10000,50000} --size SIZE"}},
       .ratios = {goal("13 1.2: scan with 1.2 us of computation a page, of native", "run_s", stated(100, "%"),
                       {{"way", "native"}, {"run", "1200"}})
                      .over("run_s", {{"way", "far"}})
                      .times(100),
                  goal("13 {run}: scan with {run} ns of computation a page, of native", "run_s", unstated("%"),
                       {{"way", "native"}, {"run", {"0", "10000", "50000"}}})
                      .over("run_s", {{"way", "far"}})
                      .times(100)},
       .differs =
           "paging with Farside's prefetching in place of AIFM's; a checksum of the page, about 0.5 us, comes on "
           "top; two threads on two cores, which evictors and server use, too"},
      {.id = "aifm-14",
       .measured = "10 threads dirty 4 MB an iteration: evacuator beside the program, and with the program stopped",
       .stated = "about 25 ms an iteration; up to 340 ms with the program stopped (13.6 times) (8.3.3)",
       .ways = {{"pauses", "bench objects --suites pauses --size SIZE"}},
       .ratios = {goal("14: p99.9 of a batch of writes, program stopped over concurrent", "p999_us", stated(340 / 25.),
                       {{"evacuator", "with the program stopped"}})
                      .over("p999_us", {{"evacuator", "concurrent"}})},
       .differs =
           "batches of writes and new objects by one thread for each core but one; the paper's ratio is of maxima"},
      {.id = "aifm-15",
       .measured = "free memory over time with 100 threads that read and compute, evacuator with and without priority",
       .stated = "without priority out of memory after about 0.7 s; evacuation begins at 12 % free (8.3.3)",
       .ways = {{"free", "bench objects --suites free-memory --size SIZE"}},
       .ratios = {goal("15: free near memory at its minimum, {scopes}", "free_min", unstated("%"),
                       over_tcp(json::object()))
                      .times(100)},
       .differs = "Farside's evictors need no priority; scopes that are always open take the place of threads that do "
                  "not let the evacuator work"}};
}

}  // namespace farside::bench::papers
