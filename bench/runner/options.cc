#include "bench/runner/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "abi/options.h"
#include "base/bits.h"
#include "base/size.h"
#include "launch/installation.h"
#include "report/files.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

constexpr uint64_t kMinBytes = 16 * kMiB;  // below, tables and queues weigh more than data

constexpr uint64_t kBytesOfKey = 650;

using Member = std::variant<std::string Settings::*, uint64_t Settings::*, unsigned Settings::*, double Settings::*,
                            bool Settings::*, std::vector<std::string> Settings::*, std::vector<unsigned> Settings::*>;

struct SettingRow {
  const char* name;  // "!--no-zram": a flag that sets false
  Member member;
  const char* value;  // its name in the help
  const char* help;
  double min = 0, max = 0;  // of a number; both 0: above 0, -1: from 0
  char separator = ',';     // of a list
};

constexpr SettingRow kOptions[] = {
    {"--size", &Settings::size, "SIZE", "data"},
    {"--local", &Settings::local, "SHARE", "share of the data that may be near"},
    {"--repeat", &Settings::repetitions, "N", "repetitions, whose median is reported", 1, 1000},
    {"--accesses", &Settings::accesses, "N", "accesses in one measurement"},
    {"--seconds", &Settings::seconds, "S", "time after which a measurement ends anyway", 0.05, 3600},
    {"--evictors", &Settings::evictors, "N", "evictor threads", 1, kMaxEvictors},
    {"--server-threads", &Settings::server_threads, "N", "threads of the memory server", 1, 64},
    {"--budget", &Settings::budget, "S", "seconds after which no measurement starts"},
    {"!--no-zram", &Settings::zram, "", "leave out kernel swap on zram"},
    {"--configurations", &Settings::configurations, "NAMES", "configurations to run"},
    {"--suites", &Settings::suites, "LIST", "suites to run"},
    {"--kinds", &Settings::kinds, "LIST", "kinds of accesses", 0, 0, ';'},
    {"--added-latency", &Settings::latencies_us, "LIST", "us that a proxy adds to each reply", -1, 1000000},
    {"--on", &Settings::place, "PATH", "a folder on the disk that is measured, or a device without data"},
    {"!--no-programs", &Settings::programs, "", "leave out redis, sort and SQLite"},
    {"--keys", &Settings::keys, "N", "keys; each takes about 650 bytes of memory"},
    {"--requests", &Settings::requests, "N", "requests in one measurement"},
    {"--pages", &Settings::pages, "N", "pages that are touched", 100, 1e7},
    {"--shares", &Settings::shares, "LIST", "percent of the memory that is near", 1, 100},
    {"--seed", &Settings::seed, "N", "of the random choices", -1, 4e9},
    {"--traces", &Settings::traces, "FILES", "traces that farside plan --record has written, instead"},
    {"--figure", &Settings::figures, "NAMES", "figures and tables to repeat"},
    {"--apps", &Settings::apps, "NAMES", "applications to run"},
    {"--transport", &Settings::transport, "NAME", "shm or tcp, to a server on this machine"},
    {"--transports", &Settings::transports, "LIST", "to a server on this machine"},
    {"--latency", &Settings::latency_us, "US", "microseconds added to each fetch over shm, for a slower link", -1, 1e6},
    {"--app-threads", &Settings::app_threads, "N", "threads of each application", 1, 64},
    {"--cut-off", &Settings::cut_off, "N", "times its native or all-near time, after which a program is ended"},
    {"--apps-dir", &Settings::apps_dir, "DIR", "the folder of the applications, where they are not installed"},
    {"--threads", &Settings::threads, "LIST", "numbers of threads", 1, 1024},
    {"--faults", &Settings::faults, "N", "faults that each simulation measures", 1000, 1e8},
    {"--costs", &Settings::costs, "FILE", "a result of scaling or threads whose costs are taken, instead of measuring"},
    {"--plots", &Settings::plots, "DIR", "folder for charts"},
    {"--json", &Settings::json, "FILE",
     "file for all figures, the machine and the commit; a run that was stopped goes on"},
    {"--quick", &Settings::quick, "", "less data and fewer repetitions, as the default of the other options"},
    {"--quiet", &Settings::quiet, "", "do not show progress"},
};

std::string plain_name(const SettingRow& row) { return row.name + (row.name[0] == '!' ? 1 : 0); }

std::vector<const SettingRow*> rows_of(const Benchmark& benchmark) {
  std::istringstream names(std::string(benchmark.options) + " --plots --json --quick --quiet");
  std::vector<const SettingRow*> rows;
  for (std::string name; names >> name;) rows.push_back(&*std::ranges::find(kOptions, name, plain_name));
  return rows;
}

bool takes(const Benchmark& benchmark, const std::string& name) {
  return std::ranges::any_of(rows_of(benchmark), [&](const SettingRow* row) { return plain_name(*row) == name; });
}

void constrain(const SettingRow& row, Option& option) {
  if (row.max == 0) option.positive();
  else option.range(std::max(row.min, 0.0), row.max);
}

// Adds the option for a member of each kind.
struct Adder {
  const Benchmark& benchmark;
  const SettingRow& row;
  Command& command;
  Settings* settings;

  void operator()(bool Settings::*flag) const { command.add_flag(row.name, &(settings->*flag), row.help); }
  void operator()(std::string Settings::*text) const {
    Option& option = command.add_option(row.name, &(settings->*text), row.help).value(row.value);
    if (!(settings->*text).empty()) option.show_default();
  }
  template <typename Number>
  void operator()(Number Settings::*number) const {
    constrain(row, command.add_option(row.name, &(settings->*number), row.help).value(row.value).show_default());
  }
  void operator()(std::vector<unsigned> Settings::*list) const {
    std::string help = fmt::format("{}, separated by commas", row.help);
    constrain(row, command.add_option(row.name, &(settings->*list), help).value(row.value).separator(row.separator));
  }
  Option& add(std::vector<std::string> Settings::*list, const std::string& help) const {
    return command.add_option(row.name, &(settings->*list), help).value(row.value).separator(row.separator);
  }
  void operator()(std::vector<std::string> Settings::*list) const {
    std::string help = fmt::format("{}, separated by {}", row.help, row.separator == ',' ? "commas" : "';'");
    auto choices = benchmark.choices.find(row.name);
    if (choices == benchmark.choices.end()) return static_cast<void>(add(list, help));
    std::string all = (settings->*list).empty() ? "all" : fmt::format("{}", fmt::join(settings->*list, ","));
    add(list, fmt::format("{}: {} (default: {})", help, fmt::join(choices->second, ", "), all)).one_of(choices->second);
  }
};

// Each configuration holds the data at most once near and once far.
Status settle_size(Settings* s) {
  Result<uint64_t> bytes = parse_size(s->size);
  if (!bytes.ok()) return bytes.status();
  if (*bytes < kMinBytes) return Status::error(EINVAL, "--size {}: at least 16M", s->size);
  s->bytes = align_up(*bytes, kPageSize);
  MachineMemory machine = machine_memory();
  if (2 * *bytes < machine.available) return {};
  return Status::error(ENOMEM, "--size {}: that needs twice as much memory, and {} are free; take a smaller size",
                       s->size, format_size(machine.available));
}

Status settle_share(Settings* s) {
  Result<SizeOrShare> local = parse_size_or_share(s->local);
  if (!local.ok()) return local.status();
  if (!local->is_share()) return Status::error(EINVAL, "--local {}: give a share of the data, as in 25%", s->local);
  s->share = local->share;
  return {};
}

Status settle_applications(Settings* s) {
  if (s->transport != "shm" && s->transport != "tcp")
    return Status::error(EINVAL, "--transport {}: give shm or tcp", s->transport);
  if (s->latency_us > 0 && s->transport != "shm") return Status::error(EINVAL, "--latency is added over shm only");
  if (!s->apps_dir.empty()) return {};
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  s->apps_dir = installation->applications();
  if (access(s->apps_dir.c_str(), R_OK) == 0) return {};
  return Status::error(ENOENT, "there are no applications in {}; give their folder with --apps-dir", s->apps_dir);
}

}  // namespace

void add_options(const std::vector<const Benchmark*>& all, const Benchmark& benchmark, Command& command,
                 Settings* settings) {
  for (const SettingRow* row : rows_of(benchmark)) {
    bool common = std::ranges::all_of(all, [&](const Benchmark* other) { return takes(*other, plain_name(*row)); });
    if (common) std::visit(Adder{benchmark, *row, command, settings}, row->member);
  }
}

Status settle(const Benchmark& benchmark, Settings* settings) {
  Status settled = settle_share(settings);
  if (settled.ok() && takes(benchmark, "--size")) settled = settle_size(settings);
  if (takes(benchmark, "--keys")) settings->bytes = settings->keys * kBytesOfKey;
  if (settled.ok() && takes(benchmark, "--apps-dir")) settled = settle_applications(settings);
  if (settled.ok() && !settings->plots.empty()) settled = make_directory(settings->plots);
  return settled.ok() ? check_writable(settings->json) : settled;
}

nlohmann::json settings_json(const Benchmark& benchmark, const Settings& settings) {
  nlohmann::json made = {{"bytes", settings.bytes}, {"local_share", settings.share}};
  for (const SettingRow* row : rows_of(benchmark)) {
    std::string name = plain_name(*row).substr(2);
    if (name == "json" || name == "plots" || name == "apps-dir" || name == "quiet") continue;
    if (name == "repeat") name = "repetitions";
    std::visit([&](auto member) { made[name] = settings.*member; }, row->member);
  }
  return made;
}

}  // namespace farside::bench
