// farside bench: measures Farside beside the kernel's swap on this machine, and says which goals are met.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "abi/options.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "bench/all/all_command.h"
#include "bench/bench.h"
#include "bench/fibers.h"
#include "bench/file.h"
#include "bench/hints.h"
#include "bench/objects/objects.h"
#include "bench/offload.h"
#include "bench/paging.h"
#include "bench/paging_report.h"
#include "bench/policies.h"
#include "bench/reads.h"
#include "bench/redis.h"
#include "bench/replicas.h"
#include "bench/scaling/calibrate.h"
#include "bench/scaling/scaling.h"
#include "bench/writeback.h"
#include "command/command.h"
#include "command/describe.h"
#include "report/files.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

constexpr uint64_t kMinBytes = 16 * kMiB;  // below, tables and queues weigh more than data
constexpr unsigned kMaxRepetitions = 1000;

constexpr const char* kPagingHelp =
    "Touches one word on one page after another, at random and in order, reading and writing, with one thread and\n"
    "with two. The configurations of paging run in turn, each in a process of its own. Kernel swap on zram needs "
    "root;\n"
    "everything that is set up for it is undone. What the figures mean: docs/benchmarks.md.\n\n"
    "Examples:\n"
    "  farside bench paging\n"
    "  farside bench paging --json paging.json --svg paging.svg\n"
    "  farside bench paging --size 256M --local 10% --repeat 1 --no-zram\n"
    "  farside bench paging --configurations shm,'zram swap'";

constexpr const char* kRedisHelp =
    "Runs redis-server natively, over far memory and on kernel swap, in turn, and redis-benchmark against it with 16\n"
    "requests in flight. Needs redis-server and redis-benchmark in PATH.\n\n"
    "Examples:\n"
    "  farside bench redis\n"
    "  farside bench redis --keys 200000 --repeat 1 --json redis.json";

constexpr const char* kPoliciesHelp =
    "Simulates which pages would be near: Zipf's law, a scan beside it, and a loop, for each policy with and without\n"
    "hints, for exact LRU and for the optimum that knows the future. Costs are assumed: 3 us for a soft fault, 6 for "
    "a\n"
    "miss over shm, 15 over tcp. The same seed gives the same figures everywhere. What they mean: "
    "docs/guide/policies.md.\n\n"
    "With --traces the traces are those of real programs, and the figures are fetches, also as multiples of the\n"
    "optimum's.\n\n"
    "Examples:\n"
    "  farside bench policies\n"
    "  farside bench policies --traces sort.pages,sqlite.pages\n"
    "  farside bench policies --svg miss_ratios.svg --shares 5,10,20,30,40,50,60,70,80,90";

constexpr const char* kScalingHelp =
    "Simulates the pager's faults and evictions with up to 128 threads on a large machine. Measures this machine "
    "first\n"
    "and simulates it, too, to show how far the simulation can be trusted. What the figures mean: "
    "docs/internals/scaling.md.\n\n"
    "Examples:\n"
    "  farside bench scaling --save-costs costs.json --json scaling.json --plots plots\n"
    "  farside bench scaling --costs costs.json --threads 8,48,128";

// What all benchmarks take.
struct OutputArguments {
  std::string json, svg;
  bool quiet = false;
};

Result<double> parse_share(const std::string& text) {
  Result<SizeOrShare> local = parse_size_or_share(text);
  if (!local.ok()) return local.status();
  if (!local->is_share()) return Status::error(EINVAL, "--local {}: give a share of the data, as in 25%", text);
  return local->share;
}

// 0 if both can be written.
Status check_outputs(const OutputArguments& output) {
  Status json = check_writable(output.json);
  return json.ok() ? check_writable(output.svg) : json;
}

// Each way holds the data at most once near and once far.
Status check_memory(uint64_t bytes) {
  MachineMemory machine = machine_memory();
  if (2 * bytes < machine.available) return {};
  return Status::error(ENOMEM, "--size {}: that needs twice as much memory, and {} are free; take a smaller size",
                       format_size(bytes), format_size(machine.available));
}

// Data of a benchmark, as given.
struct DataArguments {
  std::string size, local = "25%";
};

template <typename Settings>
Status settle_data(const DataArguments& data, Settings* settings) {
  Result<uint64_t> bytes = parse_size(data.size);
  if (!bytes.ok()) return bytes.status();
  if (*bytes < kMinBytes) return Status::error(EINVAL, "--size {}: at least 16M", data.size);
  Result<double> share = parse_share(data.local);
  if (!share.ok()) return share.status();
  settings->bytes = align_up(*bytes, kPageSize);
  settings->local = *share;
  return check_memory(*bytes);
}

// Measures, prints what text(document) says, and writes the files asked for. The program's status.
template <typename Measure, typename Text, typename Svg>
int run_benchmark(const OutputArguments& output, Status settled, Measure measure, Text text, Svg svg) {
  if (settled.ok()) settled = check_outputs(output);
  if (!settled.ok()) return fail(settled, kExitUsage);
  Result<nlohmann::json> document = measure();
  if (!document.ok()) return fail(document.status());
  fputs(text(*document).c_str(), stdout);
  Status written = write_file(output.json, document->dump(2) + "\n");
  if (written.ok() && !output.svg.empty()) written = write_file(output.svg, to_svg(svg(*document)));
  return written.ok() ? 0 : fail(written);
}

Chart no_chart(const nlohmann::json&) { return {}; }

// A benchmark over so much data with a share of it near.
template <typename Settings>
struct PagedArguments {
  DataArguments data;
  Settings settings;
  OutputArguments output;
};
using PagingArguments = PagedArguments<PagingSettings>;
using FibersArguments = PagedArguments<FibersSettings>;
using ObjectsArguments = PagedArguments<ObjectsSettings>;
using WritebackArguments = PagedArguments<WritebackSettings>;

template <typename Settings, typename Measure, typename Text, typename Svg>
int bench_paged(PagedArguments<Settings> a, Measure measure, Text text, Svg svg) {
  a.settings.quiet = a.output.quiet;
  Status settled = settle_data(a.data, &a.settings);
  return run_benchmark(
      a.output, settled, [&] { return measure(a.settings); }, text, svg);
}

struct RedisArguments {
  std::string local = "25%";
  RedisSettings settings;
  OutputArguments output;
};

int bench_redis(RedisArguments a) {
  a.settings.quiet = a.output.quiet;
  Result<double> share = parse_share(a.local);
  if (share.ok()) a.settings.local = *share;
  return run_benchmark(
      a.output, share.status(), [&] { return measure_redis(a.settings); }, redis_text, no_chart);
}

struct HintsArguments {
  HintsSettings settings;
  OutputArguments output;
};

int bench_hints(const HintsArguments& a) {
  auto measure = [&] { return Result<nlohmann::json>(measure_hints(a.settings)); };
  return run_benchmark(a.output, {}, measure, hints_text, no_chart);
}

struct PoliciesArguments {
  PoliciesSettings settings;
  OutputArguments output;
};

int bench_policies(PoliciesArguments a) {
  a.settings.quiet = a.output.quiet;
  auto measure = [&] { return measure_policies(a.settings); };
  return run_benchmark(a.output, {}, measure, policies_text, policies_charts);
}

struct ScalingArguments {
  DataArguments data;
  scaling::CalibrationSettings calibration;
  scaling::ScalingSettings settings;
  std::string costs, save_costs, plots;
  OutputArguments output;
};

Result<scaling::Costs> read_costs(const std::string& file) {
  nlohmann::json document = nlohmann::json::parse(std::ifstream(file), nullptr, false);
  if (document.is_discarded()) return Status::error(EINVAL, "--costs {}: no JSON file that can be read", file);
  return scaling::parse_costs(document);
}

Result<nlohmann::json> measure_scaling(const ScalingArguments& a) {
  auto costs = a.costs.empty() ? scaling::measure_costs(a.calibration) : read_costs(a.costs);
  if (!costs.ok()) return costs.status();
  Status saved = write_file(a.save_costs, scaling::to_json(*costs).dump(2) + "\n");
  if (!saved.ok()) return saved;
  nlohmann::json document = scaling::predict(*costs, a.settings);
  for (const auto& [name, svg] : scaling::scaling_plots(document)) {
    Status written = write_file(a.plots.empty() ? "" : a.plots + "/" + name, svg);
    if (!written.ok()) return written;
  }
  return document;
}

int bench_scaling(ScalingArguments a) {
  a.calibration.quiet = a.settings.quiet = a.output.quiet;
  Status settled = a.costs.empty() ? settle_data(a.data, &a.calibration) : Status();
  if (settled.ok()) settled = check_writable(a.save_costs);
  return run_benchmark(
      a.output, settled, [&] { return measure_scaling(a); }, scaling::scaling_text, no_chart);
}

void add_output_options(Command& command, OutputArguments* output) {
  command.add_option("--json", &output->json, "file for all figures, the machine and the commit").value("FILE");
  command.add_flag("--quiet", &output->quiet, "do not tell what is going on");
}

void add_local_option(Command& command, std::string* local) {
  command.add_option("--local", local, "share of the data that may be near").value("SHARE").show_default();
}

void add_size_option(Command& command, std::string* size) {
  command.add_option("--size", size, "data").value("SIZE").show_default();
}

void add_repeat_option(Command& command, unsigned* repetitions) {
  command.add_option("--repeat", repetitions, "repetitions, whose median is reported")
      .value("N")
      .range(1U, kMaxRepetitions)
      .show_default();
}

void add_evictors_option(Command& command, unsigned* evictors) {
  command.add_option("--evictors", evictors, "evictor threads").value("N").range(1U, kMaxEvictors).show_default();
}

void add_zram_option(Command& command, bool* zram) {
  command.add_flag("!--no-zram", zram, "leave out kernel swap on zram");
}

void add_paging(Command& parent) {
  Command& command = parent.add_command("paging", "One word on each page: random and in order, reads and writes");
  auto arguments = std::make_shared<PagingArguments>();
  arguments->data.size = "1G";
  PagingSettings& settings = arguments->settings;
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &settings.repetitions);
  add_zram_option(command, &settings.zram);
  command.add_option("--accesses", &settings.accesses, "accesses of a thread in one measurement")
      .value("N")
      .positive()
      .show_default();
  command.add_option("--seconds", &settings.seconds, "time after which a measurement ends anyway")
      .value("S")
      .positive()
      .show_default();
  add_evictors_option(command, &settings.evictors);
  command
      .add_option("--configurations", &settings.configurations,
                  "configurations to run, separated by commas (default: all)")
      .value("NAMES")
      .separator(',')
      .one_of(paging_configurations());
  command.add_option("--svg", &arguments->output.svg, "file for a bar chart").value("FILE");
  add_output_options(command, &arguments->output);
  command.set_footer(kPagingHelp);
  command.set_action([arguments] { return bench_paged(*arguments, measure_paging, paging_text, paging_chart); });
}

void add_accesses_option(Command& command, uint64_t* accesses) {
  command.add_option("--accesses", accesses, "reads in one measurement").value("N").positive().show_default();
}

void add_fibers(Command& parent) {
  Command& command =
      parent.add_command("fibers", "Random reads over tcp by 1 to 64 fibers on one worker, and by threads");
  auto arguments = std::make_shared<FibersArguments>();
  arguments->data.size = "256M";
  FibersSettings& settings = arguments->settings;
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &settings.repetitions);
  add_accesses_option(command, &settings.accesses);
  command.add_option("--svg", &arguments->output.svg, "file for a line chart").value("FILE");
  add_output_options(command, &arguments->output);
  command.set_footer(
      "Example: farside bench fibers --json fibers.json --svg fibers.svg\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_fibers, fibers_text, fibers_charts); });
}

void add_objects(Command& parent) {
  Command& command = parent.add_command("objects", "Pointers to far objects beside ordinary pointers and paging");
  auto arguments = std::make_shared<ObjectsArguments>();
  arguments->data.size = "64M";
  ObjectsSettings& settings = arguments->settings;
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &settings.repetitions);
  add_accesses_option(command, &settings.accesses);
  add_zram_option(command, &settings.zram);
  command
      .add_option("--suites", &settings.suites,
                  fmt::format("{}; separated by commas (default: all)", fmt::join(objects_suites(), ", ")))
      .value("LIST")
      .separator(',')
      .one_of(objects_suites());
  command.add_option("--svg", &arguments->output.svg, "file for line charts").value("FILE");
  add_output_options(command, &arguments->output);
  command.set_footer(
      "Examples:\n  farside bench objects --json objects.json --svg objects.svg\n"
      "  farside bench objects --suites map,pauses --repeat 1\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_objects, objects_text, objects_charts); });
}

void add_writeback(Command& parent) {
  Command& command =
      parent.add_command("writeback", "Pages of which some lines have changed leave, whole and by lines");
  auto arguments = std::make_shared<WritebackArguments>();
  arguments->data.size = "64M";
  add_size_option(command, &arguments->data.size);
  add_repeat_option(command, &arguments->settings.repetitions);
  add_evictors_option(command, &arguments->settings.evictors);
  command.add_option("--svg", &arguments->output.svg, "file for a line chart").value("FILE");
  add_output_options(command, &arguments->output);
  command.set_footer(
      "Example: farside bench writeback --json writeback.json --svg writeback.svg\nWhat is measured: "
      "docs/benchmarks.md.");
  command.set_action(
      [arguments] { return bench_paged(*arguments, measure_writeback, writeback_text, writeback_charts); });
}

void add_file(Command& parent) {
  Command& command = parent.add_command("file", "Far memory in a file, kernel swap to a file, and a mapped file");
  auto arguments = std::make_shared<PagedArguments<FileSettings>>();
  arguments->data.size = "1G";
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &arguments->settings.repetitions);
  add_accesses_option(command, &arguments->settings.accesses);
  command
      .add_option("--on", &arguments->settings.place, "a folder on the disk that is measured, or a device without data")
      .value("PATH")
      .show_default();
  command
      .add_option("--configurations", &arguments->settings.configurations,
                  "configurations to run besides the far file, separated by commas (default: all)")
      .value("NAMES")
      .separator(',')
      .one_of(file_configurations());
  command.add_flag("!--no-programs", &arguments->settings.programs, "leave out redis, sort and SQLite");
  add_output_options(command, &arguments->output);
  command.set_footer("Example: farside bench file --on /mnt/nvme\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_file, file_text, no_chart); });
}

void add_offload(Command& parent) {
  Command& command = parent.add_command("offload", "Queries natively, on far memory, and on the memory server");
  auto arguments = std::make_shared<PagedArguments<OffloadSettings>>();
  arguments->data.size = "256M";
  arguments->data.local = "10%";
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &arguments->settings.repetitions);
  add_output_options(command, &arguments->output);
  command.set_footer("Example: farside bench offload --json offload.json\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_offload, offload_text, no_chart); });
}

void add_replicas(Command& parent) {
  Command& command = parent.add_command("replicas", "What the second copy of every page costs, over shm and tcp");
  auto arguments = std::make_shared<PagingArguments>();
  arguments->data.size = "256M";
  add_size_option(command, &arguments->data.size);
  add_local_option(command, &arguments->data.local);
  add_repeat_option(command, &arguments->settings.repetitions);
  add_accesses_option(command, &arguments->settings.accesses);
  add_output_options(command, &arguments->output);
  command.set_footer("Example: farside bench replicas --json replicas.json\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_replicas, replicas_text, no_chart); });
}

void add_reads(Command& parent) {
  Command& command = parent.add_command("reads", "What requests cost both ends over tcp, one and many in flight");
  auto arguments = std::make_shared<PagedArguments<ReadsSettings>>();
  ReadsSettings& settings = arguments->settings;
  arguments->data.size = "256M";
  add_size_option(command, &arguments->data.size);
  add_repeat_option(command, &settings.repetitions);
  command.add_option("--seconds", &settings.seconds, "of each measurement").value("S").range(0.05, 60.0).show_default();
  command.add_option("--kinds", &settings.kinds, "kinds of accesses, separated by ';' (default: all)")
      .separator(';')
      .value("LIST")
      .one_of(reads_kinds());
  command
      .add_option("--added-latency", &settings.latencies_us, "us that a proxy adds to each reply, separated by commas")
      .separator(',')
      .value("LIST")
      .range(0u, 1000000u);
  add_output_options(command, &arguments->output);
  command.set_footer("Example: farside bench reads --added-latency 0,50,500\nWhat is measured: docs/benchmarks.md.");
  command.set_action([arguments] { return bench_paged(*arguments, measure_reads, reads_text, no_chart); });
}

void add_hints(Command& parent) {
  Command& command = parent.add_command("hints", "What a hint on near memory costs: instructions and cycles");
  auto arguments = std::make_shared<HintsArguments>();
  add_repeat_option(command, &arguments->settings.repetitions);
  add_output_options(command, &arguments->output);
  command.set_footer("Example: farside bench hints\nWhat is measured: docs/guide/hints.md.");
  command.set_action([arguments] { return bench_hints(*arguments); });
}

void add_redis(Command& parent) {
  Command& command = parent.add_command("redis", "redis-server with SET and GET of 512-byte values");
  auto arguments = std::make_shared<RedisArguments>();
  RedisSettings& settings = arguments->settings;
  add_local_option(command, &arguments->local);
  add_repeat_option(command, &settings.repetitions);
  add_zram_option(command, &settings.zram);
  command.add_option("--keys", &settings.keys, "keys; each takes about 650 bytes of memory")
      .value("N")
      .positive()
      .show_default();
  command.add_option("--requests", &settings.requests, "requests in one measurement")
      .value("N")
      .positive()
      .show_default();
  add_output_options(command, &arguments->output);
  command.set_footer(kRedisHelp);
  command.set_action([arguments] { return bench_redis(*arguments); });
}

void add_policies(Command& parent) {
  Command& command =
      parent.add_command("policies", "Hit rates of the policies on synthetic or recorded traces, simulated");
  auto arguments = std::make_shared<PoliciesArguments>();
  PoliciesSettings& settings = arguments->settings;
  command.add_option("--pages", &settings.pages, "pages that are touched")
      .value("N")
      .range(100u, 10000000u)
      .show_default();
  command.add_option("--accesses", &settings.accesses, "accesses of a trace").value("N").positive().show_default();
  command.add_option("--shares", &settings.shares, "percent of the pages that are near, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 100u);
  command.add_option("--seed", &settings.seed, "of the random choices").value("N").show_default();
  command.add_option("--traces", &settings.traces, "traces that farside plan --record has written, instead")
      .value("FILES")
      .separator(',');
  command.add_option("--svg", &arguments->output.svg, "file for miss-ratio curves").value("FILE");
  add_output_options(command, &arguments->output);
  command.set_footer(kPoliciesHelp);
  command.set_action([arguments] { return bench_policies(*arguments); });
}

void add_scaling(Command& parent) {
  Command& command = parent.add_command("scaling", "Up to 128 threads and 8 evictors on a large machine, simulated");
  auto arguments = std::make_shared<ScalingArguments>();
  arguments->data.size = "256M";
  scaling::ScalingSettings& settings = arguments->settings;
  command.add_option("--costs", &arguments->costs, "costs to take instead of measuring").value("FILE");
  command.add_option("--save-costs", &arguments->save_costs, "file for the measured costs").value("FILE");
  add_size_option(command, &arguments->data.size);
  add_repeat_option(command, &arguments->calibration.repetitions);
  command
      .add_option("--accesses", &arguments->calibration.accesses,
                  "accesses of one measurement, at most a second of them")
      .value("N")
      .positive()
      .show_default();
  command.add_option("--threads", &settings.threads, "numbers of threads, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 1024u);
  command.add_option("--faults", &settings.faults, "faults that each simulation measures")
      .value("N")
      .range(1000u, 100000000u)
      .show_default();
  command.add_option("--seed", &settings.seed, "of the random choices").value("N").show_default();
  command.add_option("--plots", &arguments->plots, "folder for plots").value("DIR").existing_directory();
  add_output_options(command, &arguments->output);
  command.set_footer(kScalingHelp);
  command.set_action([arguments] { return bench_scaling(*arguments); });
}

}  // namespace

int run_bench(int argc, const char* const* argv) {
  Command bench("farside bench", "Measures far memory beside the kernel's swap on this machine.");
  bench.require_command();
  bench.set_footer(
      "Examples:\n  farside bench paging --json paging.json --svg paging.svg\n  farside bench redis\n  farside bench "
      "all --quick");
  add_paging(bench);
  add_fibers(bench);
  add_hints(bench);
  add_objects(bench);
  add_writeback(bench);
  add_redis(bench);
  add_file(bench);
  add_offload(bench);
  add_replicas(bench);
  add_reads(bench);
  add_policies(bench);
  add_scaling(bench);
  add_all_command(bench);
  return run_tool(bench, {argv + 1, argv + argc});
}

}  // namespace farside::bench
