// MAGE (SOSP 2025). "n % far" of the paper is 100 - n % near here.
#include "bench/papers/papers.h"
#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

json app(const char* name, const char* configuration, unsigned near) {
  return {{"app", name}, {"configuration", configuration}, {"near", near}};
}
json simulated(const char* part, json members) { return merged(std::move(members), {{"part", part}}); }
// What a row is compared with: another resource may be its busiest.
json other(json members) {
  members["busiest"] = nullptr;
  return members;
}
json of_many(const char* design) { return simulated("others", {{"design", design}, {"threads", 48}}); }

constexpr double kLinkPages = 192e9 / 8 / 4096;  // a second, of MAGE's link
constexpr const char *kPipelined = "evictors only, pipelined",
                     *kOthers = "the same with one queue and one mapping, with signals";
constexpr const char* kSimulation = "bench scaling --threads 8,24,48 --faults 5000 --accesses 50000 --size 64M";
constexpr const char* kPrograms =
    "bench all --apps pagerank,cross_sections --configurations far --shares 10,39,80,90 "
    "--size SIZE";
constexpr const char* kFourThreads =
    "bench all --apps pagerank,cross_sections --configurations far --shares 90 "
    "--app-threads 4 --size SIZE";
constexpr const char* kSimulated =
    "simulated: machine and link have the paper's own constants, costs of a fault are "
    "measured here; 2 cores show nothing of 48";
constexpr const char* kScan = "apps/checksum_scan --size SIZE";
constexpr const char* kPrefetched =
    "run --quiet --local 90% --far TCP --tune prefetch={on,off} -- apps/checksum_scan --size SIZE";

}  // namespace

std::vector<Figure> mage() {
  return {
      {.id = "mage-1",
       .measured = "PageRank on 48 threads by far share",
       .stated = "10 % far: DiLOS loses 50 %, Hermit 75 %, an ideal system 10 % (1)",
       .ways = {{"programs", kPrograms}},
       .ratios = {goal("1 ideal: PageRank, 90 % near, ideal system, of native", "of_native", stated(90, "%"),
                       app("pagerank", "ideal", 90)),
                  goal("1: PageRank, 90 % near, of native (MAGE's own is in mage-9)", "of_native", unstated("%"),
                       app("pagerank", "far", 90))},
       .differs = "2 threads on 2 cores, shared memory; the ideal system is of this link (there 3.9 us a fetch)"},
      {.id = "mage-3",
       .measured = "PageRank and XSBench, 48 and 4 threads, Hermit and an ideal system",
       .stated = "10 % far: Hermit loses 73 and 69 %; with 4 threads 35 and 19 % (3.1)",
       .ways = {{"programs", kFourThreads}},
       .ratios = {goal("3 PR: PageRank, 4 threads, 90 % near (there Hermit), of native", "of_native", stated(65, "%"),
                       app("pagerank", "far", 90)),
                  goal("3 ideal: PageRank, 4 threads, 90 % near, ideal, of native", "of_native", unstated("%"),
                       app("pagerank", "ideal", 90)),
                  goal("3 XS: cross_sections, 4 threads, 90 % near, of native", "of_native", unstated("%"),
                       app("cross_sections", "far", 90))},
       .differs = "4 threads on 2 cores; cross_sections stands for XSBench, so nothing stands beside it"},
      {.id = "mage-4",
       .measured = "scan in order, 48 threads, prefetch on and off",
       .stated = "10 % far: 26.9 % (Hermit) and 43.9 % (DiLOS) fewer major faults, yet no faster (3.1)",
       .ways = {{"far", kPrefetched}},
       .ratios = {goal("4 miss: scan, 90 % near, misses with prefetch, of those without", "misses", stated(56.1, "%"),
                       {{"way", "far"}, {"run", "on"}})
                      .over("misses", {{"run", "off"}})
                      .times(100),
                  goal("4 rate: scan, 90 % near, pages/s, prefetch over none", "ops_per_s", unstated(),
                       {{"way", "far"}, {"run", "on"}})
                      .over("ops_per_s", {{"run", "off"}})},
       .differs = "2 threads, loopback TCP; beside ours stands DiLOS"},
      {.id = "mage-5",
       .measured = "reads in order by threads, without and with eviction at 50 % far",
       .stated =
           "saturate at 24 to 28 threads; of the ideal 5.83M pages/s with eviction: Hermit 14 %, DiLOS 30 % (3.2)",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("5 other: one queue, one mapping, synchronous eviction, 48 threads, of the link", "pages_per_s",
                       unstated("%"), of_many(kOthers))
                      .times(100 / kLinkPages),
                  goal("5 grow: pipelined eviction, 48 threads over 24, pages/s", "pages_per_s", unstated(),
                       of_many(kPipelined))
                      .over("pages_per_s", other({{"threads", 24}}))},
       .differs = kSimulated},
      {.id = "mage-6",
       .measured = "time of a fault by component, 24 and 48 threads",
       .stated = "at 48 threads 27 us (Hermit) and 6 us (DiLOS) in TLB flushes; rest plot only (3.2)",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("6: mean time of a fault, 48 threads over 8, one queue and synchronous eviction", "mean_us",
                       unstated(), of_many(kOthers))
                      .over("mean_us", other({{"threads", 8}}))},
       .differs = kSimulated},
      {.id = "mage-7",
       .measured = "latency of a TLB shootdown by threads",
       .stated = "an interrupt takes 33 times as long with 48 threads as with 1 (Hermit), bend at 28; a guest's exit "
                 "takes 1,200 cycles (3.3.1)",
       .ways = {{"kernel", "bench threads --no-zram --threads 1,2 --size SIZE --budget 60"}},
       .ratios = {goal("7: a call that drops a page, a second thread running over none, us", "us", unstated(),
                       {{"configuration", "kernel alone"}, {"workload", "drop 1 page"}, {"threads", 2}})
                      .over("us", {{"threads", 1}})},
       .differs = "2 cores show one shootdown of one other core; nothing of 48 threads"},
      {.id = "mage-9",
       .measured = "PageRank (20 GB) and XSBench (15 GB), 48 threads, by far share",
       .stated =
           "PageRank, 10 % far: MAGE loses 15 %, MAGE on Linux 19, DiLOS 51, Hermit 74; 30 % at 61 % far; 56 % are "
           "left at 90 % far. XSBench: 10 % at 9 % far, 20 % at 20 % (6.2)",
       .ways = {{"programs", kPrograms}},
       .ratios =
           {goal("9 90: PageRank, 90 % near, of native", "of_native", stated(85, "%"), app("pagerank", "far", 90)),
            goal("9 39: PageRank, 39 % near, of native", "of_native", stated(70, "%"), app("pagerank", "far", 39)),
            goal("9 10: PageRank, 10 % near, of native", "of_native", stated(56, "%"), app("pagerank", "far", 10)),
            goal("9 XS: cross_sections, 90 % near, of native", "of_native", unstated("%"),
                 app("cross_sections", "far", 90))},
       .differs = "2 threads on 2 cores, shared memory; faults arrive as signals; cross_sections stands for XSBench"},
      {.id = "mage-10",
       .measured = "scan with checksums, 20 GB, 48 threads, prefetch on and off",
       .stated =
           "10 % far: MAGE 68 % of its throughput with all near without prefetch, 93.6 % with it; DiLOS from 1.87 to "
           "2.46M ops/s, Hermit from 1.34 to 1.03 (6.2)",
       .ways = {{"native", kScan}, {"far", kPrefetched}},
       .ratios = {goal("10 on: scan, 90 % near, prefetch, of native", "ops_per_s", stated(93.6, "%"),
                       {{"way", "far"}, {"run", "on"}})
                      .over("ops_per_s", {{"way", "native"}, {"run", nullptr}})
                      .times(100),
                  goal("10 off: scan, 90 % near, no prefetch, of native", "ops_per_s", stated(68, "%"),
                       {{"way", "far"}, {"run", "off"}})
                      .over("ops_per_s", {{"way", "native"}, {"run", nullptr}})
                      .times(100)},
       .differs = "2 threads on 2 cores, loopback TCP; about 2 us of computation a page"},
      {.id = "mage-11",
       .measured = "GUPS, 85 % near; the working set moves at 10 s",
       .stated =
           "DiLOS and Hermit stall for over 2 s; MAGE falls to 0.4M updates/s for 1.4 s and is back at 0.7M (6.2)",
       .ways = {{"gups", "bench all --apps gups --configurations far,hinted --shares 85,100 --size SIZE"}},
       .ratios = {goal("11: GUPS, 85 % near, {configuration}, of native", "of_native", unstated("%"),
                       {{"app", "gups"}, {"near", 85}, {"configuration", {"far", "hinted"}}})},
       .differs = "of the whole run; --json and --plots have the timeline; 2 threads"},
      {.id = "mage-12",
       .measured = "Metis on Wikipedia, 48 threads, (a) map, (b) reduce, by far share",
       .stated = "reduce, 20 % far: MAGE loses 14.3, DiLOS 41.2, Hermit 61.3 %; map plot only (6.2)",
       .ways = {{"native", "apps/word_count --size SIZE"},
                {"far", "run --quiet --local 80% --far TCP -- apps/word_count --size SIZE"}},
       .ratios = {goal("12a: map of word_count, 80 % near, of native", "map_s", unstated("%"), {{"way", "native"}})
                      .over("map_s", {{"way", "far"}})
                      .times(100),
                  goal("12b: reduce of word_count, 80 % near, of native", "reduce_s", unstated("%"),
                       {{"way", "native"}})
                      .over("reduce_s", {{"way", "far"}})
                      .times(100)},
       .differs = "word_count stands for Metis, so nothing stands beside it; text of this machine"},
      {.id = "mage-13",
       .measured =
           "memcached's p99, 24 threads, 21M pairs, 99.8 % GET, Zipf 0.99: (a) at half load by far share, (b) half "
           "far by load",
       .stated = "(a) within 200 us MAGE 21 % more far than DiLOS, 36 % than Hermit; (b) 0.64M ops/s more than Hermit, "
                 "0.28M than DiLOS (6.3)",
       .ways = {{"memcached", "bench all --apps memcached_load --configurations far --shares 50,90 --size SIZE"}},
       .ratios = {goal("13 {near}: memcached, {near} % near, requests/s of a closed loop, of native", "of_native",
                       unstated("%"), {{"app", "memcached_load"}, {"configuration", "far"}})},
       .differs =
           "Debian's memcached, 2 cores shared with the load; the paper states differences in far share and load; "
           "--plots has p99 by load"},
      {.id = "mage-14",
       .measured = "reads in order, 30 % near, no prefetch: share of the link, p99 of a fault, synchronous evictions",
       .stated = "MAGE 94 % of 192 Gbit/s, 3.1 times DiLOS, 7.1 times Hermit; p99 12, 82, 255 us (6.4)",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("14 link: simulated, 48 threads, of the link", "pages_per_s", stated(94, "%"),
                       of_many(kPipelined))
                      .times(100 / kLinkPages),
                  goal("14 gain: simulated, 48 threads, pipelined over one queue and synchronous eviction, pages/s",
                       "pages_per_s", unstated(), of_many(kPipelined))
                      .over("pages_per_s", other({{"design", kOthers}}))},
       .differs = kSimulated},
      {.id = "mage-15",
       .measured = "p99 of a fault by throughput, beside raw RDMA",
       .stated = "plot only",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("15: simulated, p99 of a fault, 48 threads over 8, pipelined eviction", "p99_us", unstated(),
                       of_many(kPipelined))
                      .over("p99_us", other({{"threads", 8}}))},
       .differs = kSimulated},
      {.id = "mage-16",
       .measured = "time of a fault by component, 24 and 48 threads",
       .stated = "MAGE: accounting 0.2 us (DiLOS 2.1), circulation of frames 0.5 us (2.4), mean under 10 us (6.4)",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("16: simulated, mean of a fault, 48 threads, pipelined eviction, us", "mean_us", unstated(" us"),
                       of_many(kPipelined))},
       .differs = kSimulated},
      {.id = "mage-17",
       .measured = "PageRank and XSBench with one technique after the other",
       .stated = "20 % far: pipelined eviction 1.58 and 1.74 times; the list's scan 81.2 % fewer cycles; the allocator "
                 "8 % (6.5)",
       .ways = {{"simulation", kSimulation}},
       .ratios = {goal("17: simulated, random reads, 48 threads, pipelined over eviction by faulting threads, pages/s",
                       "pages_per_s", unstated(), of_many(kPipelined))
                      .over("pages_per_s", other({{"design", "4 evictors, then by faulting threads, batches of 32"}}))},
       .differs = kSimulated},
      {.id = "mage-18",
       .measured = "(a) PageRank by eviction batch, pipelined and sequential, (b) PageRank on 4 threads",
       .stated =
           "(a) best at 128 and 256, 64 still good; sequential at 64: 60 % of the link; (b) 4.7 (DiLOS) and 5.8 us "
           "(Hermit) a fault (6.5)",
       .ways = {{"simulation", kSimulation}, {"programs", kFourThreads}},
       .ratios = {goal("18a: simulated, batches of {batch} over 256, four in flight, pages/s", "pages_per_s",
                       unstated(),
                       simulated("batches", {{"workload", "random read"}, {"in flight", 4}, {"batch", {16, 64, 128}}}))
                      .over("pages_per_s", other({{"batch", 256}})),
                  goal("18b: PageRank, 4 threads, 90 % near, of native", "of_native", unstated("%"),
                       merged(app("pagerank", "far", 90), {{"way", "programs"}}))},
       .differs = "(a) simulated, of random reads; (b) 4 threads on 2 cores"},
      {.id = "mage-T2",
       .measured = "throughput with all memory near, beside the best system, Hermit",
       .stated = "MAGE: PageRank 536.91 of 578.46 jobs/h, scan 8.43 of 8.61M, GUPS 0.75 of 0.78M ops/s",
       .ways = {{"programs",
                 "bench all --apps pagerank,checksum_scan,gups --configurations far --shares 100 --size SIZE"}},
       .ratios = {goal("T2 PR: PageRank, all near, of native", "of_native", stated(100 * 536.91 / 578.46, "%"),
                       app("pagerank", "far", 100)),
                  goal("T2 scan: scan, all near, of native", "of_native", stated(100 * 8.43 / 8.61, "%"),
                       app("checksum_scan", "far", 100)),
                  goal("T2 GUPS: GUPS, all near, of native", "of_native", stated(100 * 0.75 / 0.78, "%"),
                       app("gups", "far", 100))},
       .differs =
           "beside a native run here, beside Hermit on bare metal there; XSBench and Metis have stand-ins only"}};
}

}  // namespace farside::bench::papers
