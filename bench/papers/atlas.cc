// Atlas (OSDI 2024). Its objects are AIFM, its paging Fastswap; here hybrid, objects and paged are one system.
#include "bench/papers/papers.h"
#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

json app(const char* name, const char* configuration, unsigned near) {
  return {{"app", name}, {"configuration", configuration}, {"near", near}, {"transport", "tcp"}};
}
Target rate(const char* text, Limit limit, const char* name, const char* configuration, const char* beside) {
  return goal(text, "operations_per_s", limit, app(name, configuration, 25))
      .over("operations_per_s", {{"configuration", beside}});
}
json eviction(const char* configuration) { return {{"configuration", configuration}, {"transport", "tcp"}}; }

constexpr const char* kPrograms =
    "bench apps --transports tcp --configurations paged,objects,hybrid --shares 25,100 --size SIZE";
constexpr const char* kEviction = "bench objects --suites eviction --size SIZE";
constexpr const char *kHybrid = "objects, hybrid", *kOneByOne = "objects, one by one only", *kPlain = "plain pages";

}  // namespace

std::vector<Figure> atlas() {
  return {
      {.id = "atlas-1",
       .measured = "Metis PageViewCount, 8 threads, 25 % near: fault addresses, time of map and reduce, eviction",
       .stated =
           "AIFM 1.6 times as fast as Fastswap in map, 3.3 times slower in reduce; Fastswap evicts 5 times as much "
           "with a third of the processor time (3); addresses plot only",
       .ways = {{"native", "apps/word_count --size SIZE"},
                {"far", "run --quiet --local 25% --far TCP -- apps/word_count --size SIZE"},
                {"eviction", kEviction}},
       .ratios = {goal("1b map: map of word_count, paged, 25 % near, of native", "map_s", unstated("%"),
                       {{"way", "native"}})
                      .over("map_s", {{"way", "far"}})
                      .times(100),
                  goal("1b red: reduce of word_count, paged, 25 % near, of native", "reduce_s", unstated("%"),
                       {{"way", "native"}})
                      .over("reduce_s", {{"way", "far"}})
                      .times(100),
                  goal("1c: evictors' cycles a byte, objects one by one over plain pages", "evictor_cycles_per_byte",
                       unstated(), eviction(kOneByOne))
                      .over("evictor_cycles_per_byte", {{"configuration", kPlain}})},
       .differs = "word_count stands for Metis and has no form with far objects; farside plan --record has addresses"},
      {.id = "atlas-4",
       .measured = "8 programs by near memory (13 to 100 %), Atlas, AIFM and Fastswap",
       .stated =
           "mean 3.2 times Fastswap, 1.5 times AIFM. memcached 6.4 and (AIFM) 3.2 times Fastswap, 2.2 times AIFM at "
           "25 %; GraphOne 3.1 and 1.7, 1.8; web front end 1.3 times AIFM, 5.9 and 43.7 cycles a byte evicted (5.2)",
       .ways = {{"programs", kPrograms}, {"eviction", kEviction}},
       .ratios =
           {rate("4a hyb: cache, hybrid over paging, 25 % near, requests/s", stated(6.4), "cache", "hybrid", "paged"),
            rate("4a obj: cache, objects over paging, 25 % near, requests/s", stated(3.2), "cache", "objects", "paged"),
            rate("4a h/o: cache, hybrid over objects, 25 % near, requests/s", stated(2.2), "cache", "hybrid",
                 "objects"),
            rate("4c hyb: graph, hybrid over paging, 25 % near, edges/s", stated(3.1), "graph", "hybrid", "paged"),
            rate("4c obj: graph, objects over paging, 25 % near, edges/s", stated(1.7), "graph", "objects", "paged"),
            rate("4c h/o: graph, hybrid over objects, 25 % near, edges/s", stated(1.8), "graph", "hybrid", "objects"),
            rate("4h h/o: web front end, hybrid over objects, 25 % near, requests/s", stated(1.3), "web_frontend",
                 "hybrid", "objects"),
            goal("4h cyc: evictors' cycles a byte, hybrid", "evictor_cycles_per_byte", stated(5.9, " cycles"),
                 eviction(kHybrid))},
       .differs =
           "cache in place of memcached, generated requests in place of CacheLib's; a Kronecker graph and three "
           "kernels in place of GraphOne, whose numbers are means over near memory; Fastswap is Farside's paging, "
           "AIFM Farside's objects; cycles are of writes at random. MCD-U, Aspen, Metis and DataFrame have no form "
           "with far objects here"},
      {.id = "atlas-5",
       .measured = "web front end, 25 % near: p90 by load, and the distribution at 0.23M requests/s",
       .stated = "peak 0.57M requests/s, AIFM 0.36M (1.58 times) (5.3)",
       .ways = {{"programs", kPrograms}},
       .ratios = {rate("5a: web front end, hybrid over objects, 25 % near, peak requests/s", stated(0.57 / 0.36),
                       "web_frontend", "hybrid", "objects"),
                  goal("5a p99: the same, p99 of a closed loop, objects over hybrid", "p99_us", unstated(),
                       app("web_frontend", "objects", 25))
                      .over("p99_us", {{"configuration", "hybrid"}})},
       .differs = "the peak of a closed loop; load is not varied"},
      {.id = "atlas-6",
       .measured = "memcached with CacheLib's requests, 25 % near: p90 by load, and the distribution at 1M requests/s",
       .stated = "plot only; 40 % of the gain is from grouping hot objects (5.3)",
       .ways = {{"programs", kPrograms}},
       .ratios = {goal("6 p99: cache, p99 of a closed loop, paged over hybrid, 25 % near", "p99_us", unstated(),
                       app("cache", "paged", 25))
                      .over("p99_us", {{"configuration", "hybrid"}})},
       .differs = "cache in place of memcached; load is not varied"},
      {.id = "atlas-7",
       .measured = "share of the pages on the paging path over time, three programs",
       .stated = "up to 82 % (GraphOne) (5.4); rest plot only",
       .ways = {{"paths", "bench objects --suites paths --size SIZE"}},
       .ratios = {goal("7 {workload}: bytes fetched for a useful one, hybrid", "bytes_per_useful", unstated(),
                       {{"configuration", kHybrid}, {"transport", "tcp"}})},
       .differs =
           "lines of 64 B in four patterns in place of programs; the share over time is a chart of bench objects"},
      {.id = "atlas-8",
       .measured = "offload on and off, DataFrame and web front end",
       .stated = "Atlas 1.5 and 1.6 times, AIFM 1.9 and 2.3 times as fast with offload (5.4)",
       .ways = {{"near", "run --quiet --local 25% --far TCP -- apps/taxi --way near --size SIZE"},
                {"server", "run --quiet --local 25% --far TCP -- apps/taxi --way server --size SIZE"}},
       .ratios = {goal("8 DF: taxi, 25 % near, time without over with offload (there AIFM)", "run_s", stated(1.9),
                       {{"way", "near"}})
                      .over("run_s", {{"way", "server"}})},
       .differs = "other queries on generated rides, one server process on the same 2 cores (there 18 cores); the web "
                  "front end has no offload"},
      {.id = "atlas-9",
       .measured = "overhead by source with all near, beside Fastswap",
       .stated =
           "Atlas 7.7 to 34.7 %, AIFM 1.9 to 51.4 %; memcached 9.0 and 3.2 %, web front end 10.1 and 1.9 % (5.2, 5.4)",
       .ways = {{"programs", kPrograms}, {"near", "bench objects --suites near-apps,near"}},
       .ratios = {goal("9 mcd: cache, hybrid over paged, all near, requests/s", "operations_per_s", stated(1 / 1.09),
                       app("cache", "hybrid", 100))
                      .over("operations_per_s", {{"configuration", "paged"}}),
                  goal("9 web: web front end, hybrid over paged, all near, requests/s", "operations_per_s",
                       stated(1 / 1.101), app("web_frontend", "hybrid", 100))
                      .over("operations_per_s", {{"configuration", "paged"}}),
                  goal("9 graph: graph, hybrid over paged, all near, edges/s", "operations_per_s", unstated(),
                       app("graph", "hybrid", 100))
                      .over("operations_per_s", {{"configuration", "paged"}})},
       .differs = "whole programs, not by source; cache in place of memcached"},
      {.id = "atlas-10",
       .measured = "the share of accessed objects from which on a page is paged, three programs",
       .stated = "best at 80 to 90 %; at 100 % memcached loses 25 % (5.4)",
       .ways = {{"cache",
                 "run --quiet --local 25% --far TCP --tune page-share={80%,100%} -- apps/cache --types far --size "
                 "SIZE"}},
       .ratios = {goal("10: cache, 25 % near, pages from 100 % on over from 80 % on, requests/s", "ops_per_s",
                       stated(0.75), {{"way", "cache"}, {"run", "100%"}})
                      .over("ops_per_s", {{"run", "80%"}})},
       .differs = "lines of 64 B of a page in place of cards of 16 B; one program, cache in place of memcached"},
      {.id = "atlas-11",
       .measured = "one access bit for an object beside LRU lists, 25 % near",
       .stated = "one bit 7.5, 3.3 and 6.0 % faster (5.4)",
       .ways = {{"cache",
                 "run --quiet --local 25% --far TCP --tune policy={2q,lru} -- apps/cache --types far --size SIZE"}},
       .ratios = {goal("11: cache, hybrid, 25 % near, pages by 2q over LRU, requests/s", "ops_per_s", unstated(),
                       {{"way", "cache"}, {"run", "2q"}})
                      .over("ops_per_s", {{"run", "lru"}})},
       .differs = "Farside orders pages, not objects, so its policies differ in pages"}};
}

}  // namespace farside::bench::papers
