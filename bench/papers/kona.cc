// Kona (ASPLOS 2021). Its hardware, which tracks lines by the processor's coherence, does not exist: what is repeated
// here is what its ideas bring in software.
#include "bench/papers/papers.h"
#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

// redis-server, tracked while a client writes and then ends it: keys at random, or a list that grows.
constexpr const char* kRedis =
    "track --quiet --window .1 --out OUT -- sh -c 'S=OUT/redis; K=\"set key:__rand_int__\"; [ $0 = order ] && "
    "K=\"rpush "
    "list\"; (until redis-cli -s $S ping; do sleep .1; done; redis-benchmark -s $S -q -n 1500000 -r 500000 -P 16 $K "
    "__rand_int____rand_int____rand_int__; redis-cli -s $S shutdown nosave) >OUT/log 2>&1 & exec redis-server --port 0 "
    "--unixsocket $S --save \"\" >OUT/log' {random,order}";
constexpr const char* kPageRank = "track --quiet --window 1 --out OUT -- apps/pagerank --size SIZE";
constexpr const char* kPredicted =
    "plan --blocks --quiet --seconds 20 --shares 25 --json OUT/plan.json -- apps/gups --operations 200000 --size 16M";
constexpr const char* kLines = "bench writeback --size SIZE";

json written(const char* pattern, const char* mode, std::vector<unsigned> lines) {
  return {{"link", "tcp"}, {"pattern", pattern}, {"mode", mode}, {"lines", lines}};
}
json redis(const char* keys) { return {{"way", "redis"}, {"run", keys}}; }
const json kBoth = {{"way", "redis"}, {"run", {"random", "order"}}}, kRanks = {{"way", "PageRank"}};
constexpr const char *kPages = "total/amplification/4096", *kCacheLines = "total/amplification/64";

}  // namespace

std::vector<Figure> kona() {
  return {
      {.id = "kona-T2",
       .measured = "dirty bytes at 4 KB, 2 MB and 64 B over changed bytes, nine programs, windows of 10 s",
       .stated = "Redis at random 31.36, 5516, 1.48; in order 2.76, 54.76, 1.08; PageRank 4.38, 80.71, 1.47",
       .ways = {{"redis", kRedis}, {"PageRank", kPageRank}},
       .ratios = {goal("T2 rand4K: redis, keys at random, 4 KiB", kPages, stated(31.36), redis("random")),
                  goal("T2 rand64: redis, keys at random, 64 B", kCacheLines, stated(1.48), redis("random")),
                  goal("T2 seq4K: redis, one list that grows, 4 KiB", kPages, stated(2.76), redis("order")),
                  goal("T2 seq64: redis, one list that grows, 64 B", kCacheLines, stated(1.08), redis("order")),
                  goal("T2 PR4K: PageRank, 4 KiB", kPages, stated(4.38), kRanks),
                  goal("T2 PR64: PageRank, 64 B", kCacheLines, stated(1.47), kRanks)},
       .differs = "windows of 0.1 s and 500,000 keys (there 10 s and 4 GB; PageRank here 1 s); GAP's PageRank in place "
                  "of GraphLab's; the "
                  "other programs are not here: farside track takes any program"},
      {.id = "kona-2",
       .measured = "lines of a page that Redis accesses in a window",
       .stated = "mostly 1 to 8 lines, or all 64 (2.2); curves plot only",
       .ways = {{"redis", kRedis}},
       .ratios = {goal("2 {run}: redis, dirty pages with 1 to 8 changed lines", "pages_to_8_lines", unstated("%"),
                       kBoth)},
       .differs = "changed lines only: farside track does not see reads"},
      {.id = "kona-3",
       .measured = "length of runs of accessed lines, Redis",
       .stated = "mostly 1 to 4 lines; in order also whole pages (2.2)",
       .ways = {{"redis", kRedis}},
       .ratios = {goal("3 {run}: redis, runs of 1 to 4 changed lines", "runs_to_4_lines", unstated("%"), kBoth)},
       .differs = "changed lines only"},
      {.id = "kona-7",
       .measured = "one line read and written in each page, 4 GB a thread, 50 % near; Kona and its paging",
       .stated = "6.6 times with 1 thread, 4 to 5 with 2 and 4 (6.1)",
       .ways = {{"gups", "run --quiet --local 50% --far TCP --tune writeback={page,line} -- apps/gups --size SIZE"}},
       .ratios = {goal("7: GUPS, 50 % near, write-back by lines over pages, updates/s", "ops_per_s", unstated(),
                       {{"way", "gups"}, {"run", "line"}})
                      .over("ops_per_s", {{"run", "page"}})},
       .differs =
           "Kona avoids faults by hardware that does not exist; here both ways fault, and only the bytes written "
           "back differ (twins)"},
      {.id = "kona-8",
       .measured = "mean access time by cache share, simulated: Kona, LegoOS, Infiniswap; by block size",
       .stated = "25 % cached: LegoOS 1.7 times Kona, Infiniswap 5 times; blocks of 1 KB best (6.2)",
       .ways = {{"prediction", kPredicted}},
       .ratios = {goal("8: GUPS, 25 % near, mean access, {system} over Kona", "amat_ns", unstated(),
                       {{"near", 25}, {"system", {"LegoOS", "Infiniswap", "Fastswap", "shm", "tcp"}}})
                      .over("amat_ns", {{"system", "Kona, RDMA"}})},
       .differs = "GUPS in place of Redis, linear regression and graph coloring, so nothing stands beside it; no "
                  "associativity"},
      {.id = "kona-9",
       .measured = "dirty bytes of pages over those of lines, windows of 1 s, Redis",
       .stated = "at random 2 to 10 times, in order 2 times (6.3)",
       .ways = {{"redis", kRedis}},
       .ratios = {goal("9 rand: redis, keys at random, pages over lines (there 2 to 10)", "total/dirty_bytes/4096",
                       stated(10), redis("random"))
                      .over("total/dirty_bytes/64"),
                  goal("9 seq: redis, one list that grows, pages over lines", "total/dirty_bytes/4096", stated(2),
                       redis("order"))
                      .over("total/dirty_bytes/64")},
       .differs = "windows of 0.1 s, 500,000 keys; over the whole run"},
      {.id = "kona-10",
       .measured = "gain of tracking by hardware over write protection",
       .stated = "1 % (Redis in order, Histogram) to 35 % (Redis at random) (6.3)",
       .ways = {{"redis", kRedis}, {"PageRank", kPageRank}},
       .ratios = {goal("10 {run}: redis, time in faults of write protection", "in_write_faults", unstated("%"), kBoth),
                  goal("10 PR: PageRank, time in faults of write protection", "in_write_faults", unstated("%"),
                       kRanks)},
       .differs = "the faults' number times their measured price: what tracking without them would save at most"},
      {.id = "kona-11",
       .measured = "goodput of eviction by changed lines of a page, (a) contiguous, (b) alternate, (c) by phase; 1 GB",
       .stated =
           "(a) 1 to 4 lines: 4 to 5 times pages, never below; (b) 2 to 4 lines: 2 to 3 times; (c) RDMA 15 to 20 %, "
           "bitmap 15 to 20 %, copies most (6.4)",
       .ways = {{"writeback", kLines}},
       .ratios = {goal("11a {lines}: contiguous lines over pages, {lines} lines changed (there 4 to 5), bytes/s",
                       "goodput_mb_s", stated(4), written("contiguous", "line", {1, 2, 4}))
                      .over("goodput_mb_s", {{"mode", "page"}}),
                  goal("11b {lines}: alternate lines over pages, {lines} lines changed (there 2 to 3), bytes/s",
                       "goodput_mb_s", stated(2), written("alternate", "line", {2, 4}))
                      .over("goodput_mb_s", {{"mode", "page"}}),
                  goal("11c: 4 contiguous lines, time in comparing with twins, of the time in sending", "compare_us",
                       unstated("%"), written("contiguous", "line", {4}))
                      .over("send_us")
                      .times(100)},
       .differs = "twins in place of hardware find the changed lines; loopback TCP; the lower end of the paper's range "
                  "stands beside ours"}};
}

}  // namespace farside::bench::papers
