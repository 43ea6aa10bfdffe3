// farside bench: measures Farside beside the kernel's swap on this machine, and says which goals are met.
#include <fstream>

#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/bench/paging.h"
#include "cli/bench/paging_report.h"
#include "cli/bench/fibers.h"
#include "cli/bench/policies.h"
#include "cli/bench/redis.h"
#include "cli/commands.h"
#include "cli/machine.h"

namespace farside::cli {
namespace {

using bench::PagingSettings;
using bench::PoliciesSettings;
using bench::RedisSettings;

constexpr uint64_t kLeastBytes = 16 * kMiB;  // below, tables and queues weigh more than data
constexpr unsigned kMostEvictors = 4;
constexpr unsigned kMostRepetitions = 1000;

constexpr const char* kPagingHelp =
    "Touches one word on one page after another, at random and in order, reading and writing, with one thread and\n"
    "with two. The ways of paging run in turn, each in a process of its own. Kernel swap on zram needs root;\n"
    "everything that is set up for it is undone. What the figures mean: docs/benchmarks.md.\n\n"
    "Examples:\n"
    "  farside bench paging\n"
    "  farside bench paging --json paging.json --svg paging.svg\n"
    "  farside bench paging --size 256M --local 10% --repeat 1 --no-zram\n"
    "  farside bench paging --ways shm,'zram swap'";

constexpr const char* kRedisHelp =
    "Runs redis-server natively, over far memory and on kernel swap, in turn, and redis-benchmark against it with 16\n"
    "requests in flight. Needs redis-server and redis-benchmark in PATH.\n\n"
    "Examples:\n"
    "  farside bench redis\n"
    "  farside bench redis --keys 200000 --repeat 1 --json redis.json";

constexpr const char* kPoliciesHelp =
    "Simulates which pages would be near: Zipf's law, a scan beside it, and a loop, for each policy with and without\n"
    "hints, for exact LRU and for the optimum that knows the future. Costs are assumed: 3 us for a soft fault, 6 for a\n"
    "miss over shm, 15 over tcp. The same seed gives the same figures everywhere. What they mean: docs/policies.md.\n\n"
    "Examples:\n"
    "  farside bench policies\n"
    "  farside bench policies --svg miss_ratios.svg --shares 5,10,20,30,40,50,60,70,80,90";

// What all benchmarks take.
struct OutputArguments {
  std::string json, svg;
  bool quiet = false;
};

Status check_writable(const std::string& file) {
  if (file.empty() || std::ofstream(file, std::ios::app)) return {};
  return Status::error(EACCES, "cannot write {}", file);
}

Status write_file(const std::string& file, const std::string& text) {
  if (file.empty()) return {};
  std::ofstream stream(file);
  stream << text;
  if (stream.flush()) return {};
  return Status::error(EIO, "cannot write {}", file);
}

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

struct PagingArguments {
  std::string size = "1G", local = "25%";
  PagingSettings settings;
  OutputArguments output;
};

Status settle_paging(PagingArguments* arguments) {
  Result<uint64_t> bytes = parse_size(arguments->size);
  if (!bytes.ok()) return bytes.status();
  if (*bytes < kLeastBytes) return Status::error(EINVAL, "--size {}: at least 16M", arguments->size);
  Result<double> share = parse_share(arguments->local);
  if (!share.ok()) return share.status();
  arguments->settings.bytes = align_up(*bytes, kPageSize);
  arguments->settings.local = *share;
  arguments->settings.quiet = arguments->output.quiet;
  Status memory = check_memory(*bytes);
  return memory.ok() ? check_outputs(arguments->output) : memory;
}

int bench_paging(PagingArguments arguments) {
  Status settled = settle_paging(&arguments);
  if (!settled.ok()) return fail(settled, kExitUsage);
  auto document = bench::measure_paging(arguments.settings);
  if (!document.ok()) return fail(document.status());
  fputs(bench::paging_text(*document).c_str(), stdout);
  Status json = write_file(arguments.output.json, document->dump(2) + "\n");
  if (!json.ok()) return fail(json);
  Status svg = write_file(arguments.output.svg, bench::to_svg(bench::paging_chart(*document)));
  return svg.ok() ? 0 : fail(svg);
}

struct RedisArguments {
  std::string local = "25%";
  RedisSettings settings;
  OutputArguments output;
};

int bench_redis(RedisArguments arguments) {
  Result<double> share = parse_share(arguments.local);
  if (!share.ok()) return fail(share.status(), kExitUsage);
  Status writable = check_outputs(arguments.output);
  if (!writable.ok()) return fail(writable, kExitUsage);
  arguments.settings.local = *share;
  arguments.settings.quiet = arguments.output.quiet;
  auto document = bench::measure_redis(arguments.settings);
  if (!document.ok()) return fail(document.status());
  fputs(bench::redis_text(*document).c_str(), stdout);
  Status json = write_file(arguments.output.json, document->dump(2) + "\n");
  return json.ok() ? 0 : fail(json);
}

struct FibersArguments {
  std::string size = "256M", local = "25%";
  bench::FibersSettings settings;
  OutputArguments output;
};

int bench_fibers(FibersArguments arguments) {
  Result<uint64_t> bytes = parse_size(arguments.size);
  if (!bytes.ok()) return fail(bytes.status(), kExitUsage);
  if (*bytes < kLeastBytes) return fail(Status::error(EINVAL, "--size {}: at least 16M", arguments.size), kExitUsage);
  Result<double> share = parse_share(arguments.local);
  if (!share.ok()) return fail(share.status(), kExitUsage);
  Status checked = check_memory(*bytes);
  if (checked.ok()) checked = check_outputs(arguments.output);
  if (!checked.ok()) return fail(checked, kExitUsage);
  arguments.settings.bytes = align_up(*bytes, kPageSize);
  arguments.settings.local = *share;
  arguments.settings.quiet = arguments.output.quiet;
  auto document = bench::measure_fibers(arguments.settings);
  if (!document.ok()) return fail(document.status());
  fputs(bench::fibers_text(*document).c_str(), stdout);
  Status json = write_file(arguments.output.json, document->dump(2) + "\n");
  if (!json.ok()) return fail(json);
  Status svg = write_file(arguments.output.svg, bench::to_svg(bench::fibers_charts(*document)));
  return svg.ok() ? 0 : fail(svg);
}

struct PoliciesArguments {
  PoliciesSettings settings;
  OutputArguments output;
};

int bench_policies(PoliciesArguments arguments) {
  Status writable = check_outputs(arguments.output);
  if (!writable.ok()) return fail(writable, kExitUsage);
  arguments.settings.quiet = arguments.output.quiet;
  auto document = bench::measure_policies(arguments.settings);
  fputs(bench::policies_text(document).c_str(), stdout);
  Status json = write_file(arguments.output.json, document.dump(2) + "\n");
  if (!json.ok()) return fail(json);
  Status svg = write_file(arguments.output.svg, bench::to_svg(bench::policies_charts(document)));
  return svg.ok() ? 0 : fail(svg);
}

void add_output_options(CLI::App* command, OutputArguments* output) {
  command->add_option("--json", output->json, "file for all figures, the machine and the commit")->type_name("FILE");
  command->add_flag("--quiet", output->quiet, "do not tell what is going on");
}

template <typename Settings>
void add_common_options(CLI::App* command, std::string* local, Settings* settings) {
  command->add_option("--local", *local, "share of the data that may be near")->type_name("SHARE")->capture_default_str();
  command->add_option("--repeat", settings->repetitions, "repetitions, of which the median is told")
      ->type_name("N")
      ->check(CLI::Range(1U, kMostRepetitions))
      ->capture_default_str();
  command->add_flag("!--no-zram", settings->zram, "leave out kernel swap on zram");
}

void add_paging(CLI::App* parent) {
  CLI::App* command = parent->add_subcommand("paging", "One word on each page: random and in order, reads and writes");
  auto arguments = std::make_shared<PagingArguments>();
  PagingSettings& settings = arguments->settings;
  command->add_option("--size", arguments->size, "data")->type_name("SIZE")->capture_default_str();
  add_common_options(command, &arguments->local, &settings);
  command->add_option("--accesses", settings.accesses, "accesses of a thread in one measurement")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seconds", settings.seconds, "time after which a measurement ends anyway")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--evictors", settings.evictors, "evictor threads")
      ->type_name("N")
      ->check(CLI::Range(1U, kMostEvictors))
      ->capture_default_str();
  command->add_option("--ways", settings.ways, "ways to run, separated by commas (default: all)")
      ->type_name("NAMES")
      ->delimiter(',')
      ->check(CLI::IsMember(bench::paging_ways()));
  command->add_option("--svg", arguments->output.svg, "file for a bar chart")->type_name("FILE");
  add_output_options(command, &arguments->output);
  command->footer(kPagingHelp);
  set_action(command, [arguments] { return bench_paging(*arguments); });
}

void add_fibers(CLI::App* parent) {
  CLI::App* command = parent->add_subcommand("fibers", "Random reads over tcp by 1 to 64 fibers on one worker, and by threads");
  auto arguments = std::make_shared<FibersArguments>();
  bench::FibersSettings& settings = arguments->settings;
  command->add_option("--size", arguments->size, "data")->type_name("SIZE")->capture_default_str();
  command->add_option("--local", arguments->local, "share of the data that may be near")->type_name("SHARE")->capture_default_str();
  command->add_option("--accesses", settings.accesses, "reads in one measurement")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--repeat", settings.repetitions, "repetitions, of which the median is told")
      ->type_name("N")
      ->check(CLI::Range(1U, kMostRepetitions))
      ->capture_default_str();
  command->add_option("--svg", arguments->output.svg, "file for a line chart")->type_name("FILE");
  add_output_options(command, &arguments->output);
  command->footer("Example: farside bench fibers --json fibers.json --svg fibers.svg\nWhat is measured: docs/benchmarks.md.");
  set_action(command, [arguments] { return bench_fibers(*arguments); });
}

void add_redis(CLI::App* parent) {
  CLI::App* command = parent->add_subcommand("redis", "redis-server with SET and GET of 512-byte values");
  auto arguments = std::make_shared<RedisArguments>();
  RedisSettings& settings = arguments->settings;
  add_common_options(command, &arguments->local, &settings);
  command->add_option("--keys", settings.keys, "keys; each takes about 650 bytes of memory")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--requests", settings.requests, "requests in one measurement")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_output_options(command, &arguments->output);
  command->footer(kRedisHelp);
  set_action(command, [arguments] { return bench_redis(*arguments); });
}

void add_policies(CLI::App* parent) {
  CLI::App* command = parent->add_subcommand("policies", "Hit rates of the policies on synthetic traces, simulated");
  auto arguments = std::make_shared<PoliciesArguments>();
  PoliciesSettings& settings = arguments->settings;
  command->add_option("--pages", settings.pages, "pages that are touched")
      ->type_name("N")
      ->check(CLI::Range(100u, 10000000u))
      ->capture_default_str();
  command->add_option("--accesses", settings.accesses, "accesses of a trace")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--shares", settings.shares, "percent of the pages that are near, separated by commas")
      ->type_name("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1u, 100u));
  command->add_option("--seed", settings.seed, "of the random choices")->type_name("N")->capture_default_str();
  command->add_option("--svg", arguments->output.svg, "file for miss-ratio curves")->type_name("FILE");
  add_output_options(command, &arguments->output);
  command->footer(kPoliciesHelp);
  set_action(command, [arguments] { return bench_policies(*arguments); });
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure far memory beside the kernel's swap on this machine");
  command->require_subcommand(1);
  command->footer("Examples:\n  farside bench paging --json paging.json --svg paging.svg\n  farside bench redis");
  add_paging(command);
  add_fibers(command);
  add_redis(command);
  add_policies(command);
}

}  // namespace farside::cli
