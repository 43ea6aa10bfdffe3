// The table of all benchmarks. bench/README.md shows how to add a workload or a benchmark.
#include "bench/objects/suites.h"
#include "bench/papers/papers.h"
#include "bench/regret_workloads.h"
#include "bench/scale/scale.h"
#include "bench/scaling/scaling.h"
#include "bench/suites.h"

namespace farside::bench {
namespace {

namespace far_objects = objects_bench;

const std::vector<std::string> kUntraced = {"far", "pages", "hinted", kSwap};

Settings of_threads(Settings settings) {
  settings.evictors = settings.server_threads = 4;
  settings.threads = with_processors({1, 2, 4, 8, 12, 14});
  settings.budget = 420;
  return settings;
}

std::vector<Benchmark> make_benchmarks() {
  return {
      {.name = "paging",
       .help = "One word on each page: random and in order, reads and writes",
       .about =
           R"(Touches one word on one page after another, at random and in order, reading and writing, with one
thread and with two. The configurations run in turn, each in a process of its own. Kernel swap on zram needs
root; everything that is set up for it is undone.)",
       .examples = {"", "--json paging.json --plots plots", "--size 256M --local 10% --repeat 1 --no-zram",
                    "--configurations shm,'zram swap'"},
       .options = "--size --local --repeat --accesses --seconds --evictors --no-zram --configurations",
       .defaults = {.size = "1G"},
       .quick = {.size = "128M", .accesses = 40000, .seconds = 0.3, .repetitions = 1},
       .needs = kServer | kKernelSwap | kUcx,
       .choices = {{"--configurations",
                    {"native", "shm", "tcp", "shm pages", "tcp pages", "ucx", "shm handler", kSwap, "all near"}}},
       .suites = {paging_suite()}},
      {.name = "fibers",
       .help = "Random reads over tcp by 1 to 64 fibers on one worker, and by threads",
       .examples = {"--json fibers.json --plots plots"},
       .options = "--size --local --repeat --accesses",
       .defaults = {.size = "256M", .accesses = 60000},
       .quick = {.size = "128M", .accesses = 30000, .repetitions = 1},
       .needs = kServer | kSecondServer,
       .suites = {fibers_suite()}},
      {.name = "hints",
       .help = "What a hint on near memory costs: instructions and cycles",
       .examples = {""},
       .page = "docs/guide/hints.md",
       .options = "--repeat",
       .defaults = {.repetitions = 11},
       .quick = {.repetitions = 3},
       .suites = {hints_suite()}},
      {.name = "objects",
       .help = "Pointers to far objects beside ordinary pointers and paging",
       .examples = {"--json objects.json --plots plots", "--suites map,pauses --repeat 1"},
       .options = "--size --local --repeat --accesses --no-zram --suites",
       .defaults = {.size = "64M"},
       .quick = {.size = "16M", .accesses = 8000, .repetitions = 1},
       .needs = kServer | kKernelSwap,
       .choices = {{"--suites",
                    {"near", "misses", "fibers", "paths", "map", "free-memory", "pauses", "eviction", "near-apps"}}},
       .suites = {far_objects::near_suite(), far_objects::misses_suite(), far_objects::fibers_suite(),
                  far_objects::paths_suite(), far_objects::map_suite(), far_objects::free_memory_suite(),
                  far_objects::pauses_suite(), far_objects::eviction_suite(), far_objects::near_apps_suite()}},
      {.name = "writeback",
       .help = "Pages of which some lines have changed leave, whole and by lines",
       .examples = {"--json writeback.json --plots plots"},
       .options = "--size --repeat --evictors",
       .defaults = {.size = "64M"},
       .quick = {.size = "32M", .repetitions = 1},
       .needs = kServer,
       .suites = {writeback_suite()}},
      {.name = "redis",
       .help = "redis-server with SET and GET of 512-byte values",
       .about =
           R"(Runs redis-server natively, over far memory and on kernel swap, in turn, and redis-benchmark against
it with 16 requests in flight. Needs redis-server and redis-benchmark in PATH.)",
       .examples = {"", "--keys 200000 --repeat 1 --json redis.json"},
       .options = "--local --repeat --no-zram --keys --requests",
       .quick = {.repetitions = 1, .keys = 60000, .requests = 50000},
       .needs = kServer,
       .suites = {redis_suite()}},
      {.name = "file",
       .help = "Far memory in a file, kernel swap to a file, and a mapped file",
       .examples = {"--on /mnt/nvme"},
       .options = "--size --local --repeat --accesses --on --configurations --no-programs",
       .defaults = {.size = "1G"},
       .quick = {.size = "64M", .accesses = 5000, .seconds = 0.5, .repetitions = 1},
       .choices = {{"--configurations", {"far file", "encrypted", "kernel swap", "mapped file"}}},
       .suites = {file_accesses_suite(), file_programs_suite()}},
      {.name = "offload",
       .help = "Queries natively, on far memory, and on the memory server",
       .examples = {"--json offload.json"},
       .options = "--size --local --repeat",
       .defaults = {.size = "256M", .local = "10%"},
       .quick = {.size = "128M", .local = "10%", .repetitions = 1},
       .needs = kServer | kOffload,
       .suites = {offload_suite()}},
      {.name = "replicas",
       .help = "What the second copy of every page costs, over shm and tcp",
       .examples = {"--json replicas.json"},
       .options = "--size --local --repeat --accesses",
       .defaults = {.size = "256M"},
       .quick = {.size = "64M", .accesses = 20000, .seconds = 0.5, .repetitions = 1},
       .needs = kServer | kSecondServer,
       .suites = {replicas_suite()}},
      {.name = "reads",
       .help = "What requests cost both ends over tcp, one and many in flight",
       .examples = {"--added-latency 0,50,500"},
       .options = "--size --repeat --seconds --kinds --added-latency",
       .defaults = {.size = "256M", .seconds = 0.5},
       .quick = {.size = "64M", .seconds = 0.1, .repetitions = 1},
       .needs = kServer | kSecondServer,
       .choices = {{"--kinds",
                    {"one thread", "one thread, gathered", "threads", "two servers, gathered", "64 bytes, gathered",
                     "2 MiB pieces, read", "2 MiB pieces, write"}}},
       .suites = {reads_suite()}},
      {.name = "policies",
       .help = "Hit rates of the policies on synthetic or recorded traces, simulated",
       .about =
           R"(Simulates which pages would be near: Zipf's law, a scan beside it, and a loop, for each policy with and
without hints, for exact LRU and for the optimum that knows the future. Costs are assumed: 3 us for a soft
fault, 6 for a miss over shm, 15 over tcp. The same seed gives the same figures everywhere. With --traces
the traces are those of real programs, and the figures are fetches, also as multiples of the optimum's.)",
       .examples = {"", "--traces sort.pages,sqlite.pages", "--plots plots --shares 5,10,20,30,40,50,60,70,80,90"},
       .page = "docs/internals/policies.md",
       .options = "--pages --accesses --shares --seed --traces",
       .defaults = {.accesses = 400000, .repetitions = 1},
       .quick = {.accesses = 100000, .repetitions = 1, .pages = 4000},
       .suites = {policies_suite()}},
      {.name = "threads",
       .help = "Faults and evictions by 1 to 14 threads, and what the kernel alone permits",
       .about =
           R"(Measures with 1, 2, 4, 8, 12 and 14 threads, as far as there are processors. Far memory over shm and
tcp and in handler mode, kernel swap where it can be set up, and the kernel's parts of a fault without Farside.
bench/scale/run packs it for a machine without anything installed.)",
       .examples = {"--json threads.json --budget 400"},
       .page = "bench/scale/README.md",
       .options =
           "--size --local --repeat --accesses --seconds --evictors --server-threads --threads --budget --no-zram",
       .defaults = of_threads({.size = "512M", .accesses = 1000000, .seconds = 0.7}),
       .quick = of_threads({.size = "64M", .accesses = 100000, .seconds = 0.1, .repetitions = 1}),
       .needs = kServer | kKernelSwap | kSelfPaging,
       .suites = {threads_suite()}},
      {.name = "scaling",
       .help = "Up to 128 threads and 8 evictors on a large machine, simulated",
       .about =
           R"(Simulates the pager's faults and evictions with up to 128 threads on a large machine. Measures this
machine first and simulates it, too, to show how far the simulation can be trusted.)",
       .examples = {"--json scaling.json --plots plots", "--costs scaling.json --threads 8,48,128"},
       .page = "docs/internals/scaling.md",
       .options = "--size --local --repeat --accesses --seconds --seed --threads --faults --costs",
       .defaults = {.size = "256M", .accesses = 100000, .seconds = 1},
       .quick = {.size = "64M", .accesses = 30000, .seconds = 0.3, .repetitions = 1, .faults = 3000},
       .suites = {scaling_suite()}},
      {.name = "all",
       .help = "All applications, at 10 to 100 % near, beside an ideal system",
       .about =
           R"(Runs each application natively, over far memory (far: as it is; pages: without huge pages; hinted: with
the hints of the application), and under a memory limit with swap on zram (root), in turn, and puts an ideal system
beside them. traced: which share of the faults occurs at lines with hints. Ends with status 1 if a program fails
or configurations compute different results.)",
       .examples = {"--quick", "--json all.json --plots plots --size 512M",
                    "--apps gups,pagerank --shares 10,50,90 --configurations far,hinted,traced --latency 3.9"},
       .options = "--apps --configurations --shares --size --seed --app-threads --repeat --transport --latency "
                  "--cut-off --no-zram --apps-dir",
       .defaults = {.size = "96M", .configurations = kUntraced, .shares = {10, 30, 50, 70, 90, 100}},
       .quick = {.size = "40M", .repetitions = 1, .configurations = kUntraced, .shares = {25, 50, 100}},
       .needs = kServer,
       .choices = {{"--apps", application_names()}, {"--configurations", {"far", "pages", "hinted", kSwap, "traced"}}},
       .suites = {applications_suite()}},
      {.name = "apps",
       .help = "Applications over std types, with hints, and over far types, same near memory",
       .about =
           R"(Runs each application that is a template over its types in these forms: paged (std types as they are),
hinted (std types with hints), objects (far types, fetched one by one), hybrid (far types; Farside chooses pages or
objects), and std types under a memory limit with swap on zram (root). All have the same near memory: a share of what
the std types use natively, and 8 MiB; at 100 all of the program's own heap. They have the same fibers and compute the same
results: the benchmark ends with status 1 if they do not.)",
       .examples = {"--quick", "--json apps.json --plots plots",
                    "--apps web_frontend --shares 25 --configurations paged,hybrid"},
       .options =
           "--apps --configurations --shares --size --seed --app-threads --repeat --transports --cut-off --no-zram "
           "--apps-dir",
       .defaults = {.size = "128M", .shares = {10, 25, 50, 75, 100}, .cut_off = 200},
       .quick = {.size = "32M", .repetitions = 1, .shares = {50, 100}, .cut_off = 200},
       .needs = kServer,
       .choices = {{"--apps", far_type_names()},
                   {"--configurations", {"paged", "hinted", "objects", "hybrid", kSwap}},
                   {"--transports", {"shm", "tcp"}}},
       .suites = {far_types_suite()}},
      {.name = "regret",
       .help = "What the defaults cost beside the best fixed settings",
       .about =
           R"(Runs each workload with all memory near, and then, at each share of what it used, with the default settings
and with all others of huge pages, prefetching and the policies 2q and lru. Regret is the cost of the defaults over the
smallest cost: in pages fetched and written back, of which equal runs differ little, and in time. What is not
installed is left out. Ends with status 1 if a program fails or prints something else.)",
       .examples = {"--quick", "--json regret.json --plots plots", "--apps loop,zones,'GNU sort' --shares 25,50"},
       .page = "docs/internals/regret.md",
       .options = "--apps --shares --size --repeat --cut-off --budget --apps-dir",
       .defaults = {.size = "96M", .repetitions = 1},
       .quick = {.size = "16M", .repetitions = 1, .apps = {"loop", "GNU sort"}, .shares = {50}},
       .needs = kServer,
       .choices = {{"--apps", regret_workload_names()}},
       .suites = {regret_suite()}},
      {.name = "papers",
       .help = "The figures and tables of five papers, repeated here",
       .about =
           R"(Runs for each figure and table of AIFM, Eden, MAGE, Atlas and Kona that reports results the commands that
measure the same here, and puts the paper's ratio beside ours. Where nothing can be measured it says why. A run of
all takes hours, --quick minutes.)",
       .examples = {"--figure aifm-6,atlas-4", "--json papers.json --plots plots"},
       .page = "docs/papers.md",
       .options = "--figure --size --repeat --budget --apps-dir",
       .defaults = {.size = "256M"},
       .quick = {.size = "16M", .repetitions = 1},
       .needs = kServer | kOffload,
       .choices = {{"--figure", figure_names()}},
       .suites = {papers_suite()}},
  };
}

}  // namespace

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all = make_benchmarks();
  return all;
}

}  // namespace farside::bench
