#include "bench/all/all_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/log.h"
#include "base/size.h"
#include "bench/all/all.h"
#include "bench/all/all_report.h"
#include "bench/all/workloads.h"
#include "report/files.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kMinBytes = 1 * kMiB, kQuickBytes = 40 * kMiB;
constexpr unsigned kMaxRepetitions = 100, kMaxThreads = 64;
const std::vector<std::string> kConfigurations = {kNative, kFar, kPages, kHinted, kZram};
const std::vector<unsigned> kQuickShares = {25, 50, 100};

constexpr const char* kHelp =
    "Runs each application natively, over far memory (far: as it is; pages: without huge pages; hinted: with the\n"
    "hints of the application), and under a memory limit with swap on zram (root), in turn, and puts an ideal system\n"
    "beside them. Every figure is written at once: started again with the same settings, it goes on where it was\n"
    "stopped. --out gets results.json, results.txt, and for each application a plot of throughput by share, of time\n"
    "lines and of latencies where it has them. Ends with status 1 if a program fails or configurations compute\n"
    "different results. What the figures mean: docs/benchmarks.md.\n\n"
    "Examples:\n"
    "  farside bench all --quick\n"
    "  farside bench all --out results --size 512M\n"
    "  farside bench all --apps gups,pagerank --shares 10,50,90 --configurations far,hinted --latency 3.9 --trace";

struct AllArguments {
  AllSettings settings;
  std::string size;
  bool quick = false;
};

template <typename T>
void sort_unique(std::vector<T>* values) {
  std::ranges::sort(*values);
  auto repeated = std::ranges::unique(*values);
  values->erase(repeated.begin(), repeated.end());
}

Status settle(AllArguments* a, const Command& command) {
  AllSettings& s = a->settings;
  if (a->quick && !command.given("--size")) s.size = kQuickBytes;
  if (a->quick && !command.given("--shares")) s.list.shares = kQuickShares;
  if (a->quick && !command.given("--repeat")) s.list.repetitions = 1;
  if (!a->size.empty()) {
    Result<uint64_t> bytes = parse_size(a->size);
    if (!bytes.ok()) return bytes.status();
    s.size = *bytes;
  }
  if (s.size < kMinBytes) return Status::error(EINVAL, "--size {}: at least 1M", a->size);
  MachineMemory machine = machine_memory();
  if (3 * s.size > machine.available) {
    return Status::error(ENOMEM,
                         "--size {}: that needs three times as much memory, and {} are free; take a smaller size",
                         format_size(s.size), format_size(machine.available));
  }
  if (s.latency_us > 0 && s.transport != "shm") return Status::error(EINVAL, "--latency is added over shm only");
  sort_unique(&s.list.shares);
  Result<std::string> apps = s.apps_dir.empty() ? find_applications() : Result<std::string>(s.apps_dir);
  if (!apps.ok()) return apps.status();
  s.apps_dir = std::filesystem::absolute(*apps).string();
  return make_directory(s.out);
}

Status write_results(const AllSettings& s, const json& document) {
  std::string text = all_text(document, s.list);
  fputs(text.c_str(), stdout);
  Status written = write_file(s.out + "/results.txt", text);
  for (const auto& [name, panels] : all_charts(document, s.list)) {
    if (written.ok()) written = write_file(s.out + "/" + name, to_svg(panels));
  }
  return written;
}

int bench_all(AllArguments a, const Command& command) {
  Status settled = settle(&a, command);
  if (!settled.ok()) return fail(settled, kExitUsage);
  json document;
  Status done = measure_applications(a.settings, &document);
  if (document.is_null()) return fail(done);
  Status written = write_results(a.settings, document);
  if (!written.ok()) return fail(written);
  if (done.code() == EINTR)
    return fail(Status::error(EINTR, "stopped by a signal; the same command goes on from here"));
  if (!done.ok()) return fail(done);
  size_t problems = problems_of(document).size();
  if (problems == 0) return 0;
  return fail(Status::error(EIO, "{} of the runs failed or differ; they are listed at the end of {}/results.txt",
                            problems, a.settings.out));
}

void add_what(Command& command, AllArguments* a) {
  AllSettings& s = a->settings;
  command.add_option("--apps", &s.list.apps, "applications, separated by commas (default: all)")
      .value("NAMES")
      .separator(',')
      .one_of(application_names());
  command
      .add_option("--configurations", &s.list.configurations,
                  "beside native: far, pages, hinted, zram, separated by commas (default: all)")
      .value("NAMES")
      .separator(',')
      .one_of(kConfigurations);
  command.add_option("--shares", &s.list.shares, "percent of the memory that may be near, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 100u)
      .show_default();
  command.add_option("--size", &a->size, "data of each application (default: 96M)").value("SIZE");
  command.add_option("--seed", &s.seed, "of the data").value("N").show_default();
  command.add_option("--threads", &s.threads, "of each application").value("N").range(1u, kMaxThreads).show_default();
  command.add_option("--repeat", &s.list.repetitions, "repetitions, whose median is reported")
      .value("N")
      .range(1u, kMaxRepetitions)
      .show_default();
  command.add_flag("--quick", &a->quick, "40M of data, three shares, one repetition: two or three minutes");
}

void add_how(Command& command, AllArguments* a) {
  AllSettings& s = a->settings;
  command.add_option("--transport", &s.transport, "shm or tcp, to a server on this machine")
      .value("NAME")
      .one_of({"shm", "tcp"})
      .show_default();
  command.add_option("--latency", &s.latency_us, "microseconds added to each fetch over shm, for a slower link")
      .value("US")
      .non_negative();
  command.add_option("--cut-off", &s.cut_off, "times the native time after which a run is given up")
      .value("N")
      .positive()
      .show_default();
  command.add_flag("--trace", &s.trace, "ask farside trace which part of the faults stands at hinted lines");
  command.add_flag("--fresh", &s.fresh, "measure again what --out has already");
  command.add_option("--apps-dir", &s.apps_dir, "where the applications are (default: beside this program)")
      .value("DIR");
  command.add_option("--out", &s.out, "directory for the results").value("DIR").show_default();
  command.add_flag("--quiet", &s.quiet, "do not tell what is going on");
}

}  // namespace

void add_all_command(Command& parent) {
  Command& command = parent.add_command("all", "All applications, at 10 to 100 % near, beside an ideal system");
  auto arguments = std::make_shared<AllArguments>();
  arguments->settings.list.apps = application_names();
  arguments->settings.list.configurations = kConfigurations;
  add_what(command, arguments.get());
  add_how(command, arguments.get());
  command.set_footer(kHelp);
  command.set_action([arguments, &command] { return bench_all(*arguments, command); });
}

}  // namespace farside::bench
