// The table of all benchmarks. bench/README.md shows how to add a workload or a benchmark.
#include "bench/objects/suites.h"
#include "bench/suites.h"

namespace farside::bench {
namespace {

namespace far_objects = objects_bench;

std::vector<Benchmark> make_benchmarks() {
  return {
      {.name = "paging",
       .help = "One word on each page: random and in order, reads and writes",
       .footer =
           "Touches one word on one page after another, at random and in order, reading and writing, with one thread "
           "and\n"
           "with two. The configurations run in turn, each in a process of its own. Kernel swap on zram needs root;\n"
           "everything that is set up for it is undone. What the figures mean: docs/benchmarks.md.\n\n"
           "Examples:\n"
           "  farside bench paging\n"
           "  farside bench paging --json paging.json --svg paging.svg\n"
           "  farside bench paging --size 256M --local 10% --repeat 1 --no-zram\n"
           "  farside bench paging --configurations shm,'zram swap'",
       .options = "--size --local --repeat --accesses --seconds --evictors --no-zram --configurations --svg",
       .defaults = {.size = "1G"},
       .needs = kServer | kKernelSwap | kUcx,
       .choices = {"native", "shm", "tcp", "shm pages", "tcp pages", "ucx", "shm handler", kSwap, "all near"},
       .suites = {paging_suite()}},
      {.name = "fibers",
       .help = "Random reads over tcp by 1 to 64 fibers on one worker, and by threads",
       .footer = "Example: farside bench fibers --json fibers.json --svg fibers.svg\n"
                 "What is measured: docs/benchmarks.md.",
       .options = "--size --local --repeat --accesses --svg",
       .defaults = {.size = "256M", .accesses = 60000},
       .needs = kServer | kSecondServer,
       .suites = {fibers_suite()}},
      {.name = "hints",
       .help = "What a hint on near memory costs: instructions and cycles",
       .footer = "Example: farside bench hints\nWhat is measured: docs/guide/hints.md.",
       .options = "--repeat",
       .defaults = {.repetitions = 11},
       .needs = 0,
       .suites = {hints_suite()}},
      {.name = "objects",
       .help = "Pointers to far objects beside ordinary pointers and paging",
       .footer = "Examples:\n  farside bench objects --json objects.json --svg objects.svg\n"
                 "  farside bench objects --suites map,pauses --repeat 1\nWhat is measured: docs/benchmarks.md.",
       .options = "--size --local --repeat --accesses --no-zram --suites --svg",
       .defaults = {.size = "64M"},
       .needs = kServer | kKernelSwap,
       .choices = {"near", "misses", "fibers", "paths", "map", "free-memory", "pauses", "eviction", "near-apps"},
       .suites = {far_objects::near_suite(), far_objects::misses_suite(), far_objects::fibers_suite(),
                  far_objects::paths_suite(), far_objects::map_suite(), far_objects::free_memory_suite(),
                  far_objects::pauses_suite(), far_objects::eviction_suite(), far_objects::near_apps_suite()}},
      {.name = "writeback",
       .help = "Pages of which some lines have changed leave, whole and by lines",
       .footer = "Example: farside bench writeback --json writeback.json --svg writeback.svg\n"
                 "What is measured: docs/benchmarks.md.",
       .options = "--size --repeat --evictors --svg",
       .defaults = {.size = "64M"},
       .needs = kServer,
       .suites = {writeback_suite()}},
      {.name = "redis",
       .help = "redis-server with SET and GET of 512-byte values",
       .footer = "Runs redis-server natively, over far memory and on kernel swap, in turn, and redis-benchmark against "
                 "it with\n"
                 "16 requests in flight. Needs redis-server and redis-benchmark in PATH.\n\n"
                 "Examples:\n"
                 "  farside bench redis\n"
                 "  farside bench redis --keys 200000 --repeat 1 --json redis.json",
       .options = "--local --repeat --no-zram --keys --requests",
       .defaults = {},
       .needs = kServer,
       .suites = {redis_suite()}},
      {.name = "file",
       .help = "Far memory in a file, kernel swap to a file, and a mapped file",
       .footer = "Example: farside bench file --on /mnt/nvme\nWhat is measured: docs/benchmarks.md.",
       .options = "--size --local --repeat --accesses --on --configurations --no-programs",
       .defaults = {.size = "1G"},
       .needs = 0,
       .choices = {"far file", "encrypted", "kernel swap", "mapped file"},
       .suites = {file_accesses_suite(), file_programs_suite()}},
      {.name = "offload",
       .help = "Queries natively, on far memory, and on the memory server",
       .footer = "Example: farside bench offload --json offload.json\nWhat is measured: docs/benchmarks.md.",
       .options = "--size --local --repeat",
       .defaults = {.size = "256M", .local = "10%"},
       .needs = kServer | kOffload,
       .suites = {offload_suite()}},
      {.name = "replicas",
       .help = "What the second copy of every page costs, over shm and tcp",
       .footer = "Example: farside bench replicas --json replicas.json\nWhat is measured: docs/benchmarks.md.",
       .options = "--size --local --repeat --accesses",
       .defaults = {.size = "256M"},
       .needs = kServer | kSecondServer,
       .suites = {replicas_suite()}},
      {.name = "reads",
       .help = "What requests cost both ends over tcp, one and many in flight",
       .footer = "Example: farside bench reads --added-latency 0,50,500\nWhat is measured: docs/benchmarks.md.",
       .options = "--size --repeat --seconds --kinds --added-latency",
       .defaults = {.size = "256M", .seconds = 0.5},
       .needs = kServer | kSecondServer,
       .choices = {"one thread", "one thread, gathered", "threads", "two servers, gathered", "64 bytes, gathered",
                   "2 MiB pieces, read", "2 MiB pieces, write"},
       .suites = {reads_suite()}},
      {.name = "policies",
       .help = "Hit rates of the policies on synthetic or recorded traces, simulated",
       .footer =
           "Simulates which pages would be near: Zipf's law, a scan beside it, and a loop, for each policy with and\n"
           "without hints, for exact LRU and for the optimum that knows the future. Costs are assumed: 3 us for a "
           "soft\n"
           "fault, 6 for a miss over shm, 15 over tcp. The same seed gives the same figures everywhere. What they "
           "mean:\n"
           "docs/guide/policies.md. With --traces the traces are those of real programs, and the figures are fetches,\n"
           "also as multiples of the optimum's.\n\n"
           "Examples:\n"
           "  farside bench policies\n"
           "  farside bench policies --traces sort.pages,sqlite.pages\n"
           "  farside bench policies --svg miss_ratios.svg --shares 5,10,20,30,40,50,60,70,80,90",
       .options = "--pages --accesses --shares --seed --traces --svg",
       .defaults = {.accesses = 400000, .repetitions = 1},
       .needs = 0,
       .suites = {policies_suite()}},
  };
}

}  // namespace

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = make_benchmarks();
  return all;
}

}  // namespace farside::bench
