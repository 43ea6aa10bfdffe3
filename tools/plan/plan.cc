// farside plan: how much near memory a program needs: computed from one sampled run, measured at several shares, or for
// blocks of several sizes from all accesses.
#include "tools/plan/plan.h"

#include <fmt/ranges.h>

#include <memory>

#include "cli/run.h"
#include "cli/tools.h"
#include "command/describe.h"
#include "launch/preload.h"
#include "report/files.h"
#include "tools/plan/measure.h"
#include "tools/plan/one_run.h"
#include "tools/plan/one_run_report.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/predict.h"
#include "tools/plan/predict_report.h"
#include "tools/plan/running.h"

namespace farside::plan {
namespace {

constexpr unsigned kMaxRepetitions = 100;

constexpr const char* kHelp =
    "Runs the program once, with all of its memory near, and samples which pages it uses. Prints what it would lose "
    "with\n"
    "less near memory, and the smallest size with which it is fast enough. The program gets no input, and its output "
    "is\n"
    "discarded. A server gets SIGTERM after --for, or when its --load has ended. See docs/guide/plan.md.\n\n"
    "With -p a program is sampled that runs under Farside already: a process, or the launcher or shell that started "
    "it,\n"
    "for --seconds. It keeps running, somewhat slower meanwhile.\n\n"
    "With --shares the program runs natively and at each share of near memory instead, and its throughput is printed\n"
    "beside that of an ideal system, in which a fault costs the latency of the link and nothing else.\n\n"
    "With --blocks one run is observed with valgrind, which takes some hundred times as long as the program alone.\n"
    "Misses, access times and slowdowns are computed for blocks of 64 B to 2 MiB, over several links and on published\n"
    "systems.\n\n"
    "Examples:\n"
    "  farside plan -- sort big.txt\n"
    "  farside plan --slowdown 25% --far tcp://10.0.0.2:7170 --token-file secret -- ./job data.csv\n"
    "  farside plan --for 60 --load 'redis-benchmark -q -t get -r 1000000' -- redis-server\n"
    "  farside plan -p 4711 --seconds 60\n"
    "  farside plan --shares 10,25,50,100 --latency 3.9 --repeat 3 --json plan.json --svg plan.svg -- ./job data.csv\n"
    "  farside plan --blocks --seconds 300 --svg plan.svg -- ./job small.csv\n"
    "  farside plan --record sort.pages -- sort small.txt";

struct PlanArguments {
  cli::GivenOptions options;
  pid_t pid = 0;
  OneRunSettings one_run;
  PlanSettings settings;
  PredictSettings predict;
  bool predicted = false, checked = false;
  std::string slowdown = "10%", json, svg, record;
};

Status settle_slowdown(PlanArguments* a) {
  Result<SizeOrShare> share = parse_size_or_share(a->slowdown);
  if (!share.ok() || !share->is_share())
    return Status::error(EINVAL, "--slowdown={} is not valid; use a share of native, above 0% and up to 100%",
                         a->slowdown);
  a->settings.slowdown = a->predict.slowdown = a->one_run.slowdown = share->share;
  a->predict.latencies = a->settings.latencies;
  auto& shares = a->settings.shares;
  if (a->checked && shares.empty()) shares = {25, 50, 75, 100};
  std::ranges::sort(shares);
  shares.erase(std::unique(shares.begin(), shares.end()), shares.end());
  return {};
}

// What `-p` excludes, and what observes a program for --seconds.
Status check_pid(const Command& command, const PlanArguments& a, const std::vector<std::string>& program) {
  if (a.pid == 0) {
    if (!command.given("--seconds") || a.predicted) return {};
    return Status::error(EINVAL, "--seconds belongs to -p PID or --blocks; --for 60 ends a program after a minute");
  }
  if (!program.empty()) return Status::error(EINVAL, "give a process (-p {}) or a program after --, not both", a.pid);
  for (const char* other :
       {"--shares", "--latency", "--repeat", "--for", "--load", "--blocks", "--check", "--record"}) {
    if (command.given(other))
      return Status::error(EINVAL, "{} needs a program after --, and does not go with -p {}", other, a.pid);
  }
  return {};
}

// With --check what was computed is measured, too.
Result<nlohmann::json> make_plan(const PlanArguments& a, const cli::RunSettings& run, const std::string& path,
                                 const std::vector<std::string>& program) {
  if (a.pid != 0) return plan_running(a.pid, a.one_run, run);
  if (!a.predicted && !a.settings.shares.empty() && !a.checked) return measure_plan(a.settings, run, path, program);
  auto document =
      a.predicted ? predict_plan(a.predict, run, path, program) : plan_one_run(a.one_run, run, path, program);
  if (!document.ok() || !a.checked) return document;
  PlanSettings measuring = a.settings;
  measuring.heap_bytes = document->value("heap_bytes", 0.0);
  auto measured = measure_plan(measuring, run, path, program);
  if (!measured.ok()) return measured.status();
  if (a.predicted) add_check(*measured, &*document);
  else check_one_run(*measured, &*document);
  return document;
}

std::string text_of(const nlohmann::json& document) {
  if (document.contains("systems")) return predict_text(document);
  return document.contains("rounds") ? one_run_text(document) : plan_text(document);
}

std::vector<LineChart> charts_of(const nlohmann::json& document) {
  if (document.contains("systems")) return predict_charts(document);
  return document.contains("rounds") ? one_run_chart(document) : plan_chart(document);
}

int record(const PlanArguments& a, const cli::RunSettings& run, const std::string& path,
           std::vector<std::string> program) {
  program[0] = path;
  Result<PageTraceHeader> made = record_pages(program, a.record, run.options.quiet);
  if (!made.ok()) return fail(made.status());
  fmt::print("{}: {} pages, {} accesses recorded of {}\n", a.record, made->pages, made->recorded, made->seen);
  return 0;
}

int plan_program(PlanArguments a, const std::vector<std::string>& program) {
  Status settled = settle_slowdown(&a);
  Result<cli::RunSettings> run = settled.ok() ? cli::settle(a.options) : settled;
  for (const std::string& file : {a.json, a.svg, a.record}) {
    if (settled.ok()) settled = check_writable(file);
  }
  if (settled.ok() && run.ok()) settled = hand_over(run->options);  // to the runs of this command
  if (!settled.ok() || !run.ok()) return fail(settled.ok() ? run.status() : settled, kExitUsage);
  int exit_status = 0;
  Result<std::string> path = a.pid != 0 ? std::string() : cli::find_runnable("farside plan", program, &exit_status);
  if (!path.ok()) return fail(path.status(), exit_status);
  if (!a.record.empty()) return record(a, *run, *path, program);
  Result<nlohmann::json> document = make_plan(a, *run, *path, program);
  if (!document.ok()) return fail(document.status());
  fputs(text_of(*document).c_str(), stdout);
  Status written = write_file(a.json, document->dump(2) + "\n");
  if (written.ok() && !a.svg.empty()) {
    auto words = (*document)["program"].get<std::vector<std::string>>();
    written = write_file(a.svg, to_svg(charts_of(*document), fmt::format("{}", fmt::join(words, " "))));
  }
  if (!written.ok()) return fail(written);
  return document->value("complete", true) ? 0 : kExitFailure;
}

}  // namespace

int run_plan(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  std::vector<std::string> program = take_program(&words);
  Command command("farside plan", cli::tool_help("plan"));
  auto arguments = std::make_shared<PlanArguments>();
  PlanSettings& settings = arguments->settings;
  command
      .add_option("--shares", &settings.shares, "measure with these percentages of the heap near, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 100u);
  command
      .add_option("--latency", &settings.latencies, "microseconds that a page takes over another link; again for more")
      .value("US")
      .separator(',')
      .positive();
  command.add_option("--slowdown", &arguments->slowdown, "against native, that you would accept")
      .value("SHARE")
      .show_default();
  command.add_option("--repeat", &settings.repetitions, "repetitions, whose median is reported")
      .value("N")
      .range(1u, kMaxRepetitions)
      .show_default();
  command.add_option("--for", &arguments->one_run.seconds, "send it SIGTERM after so many seconds")
      .value("S")
      .non_negative();
  command.add_option("--load", &arguments->one_run.load, "run this in a shell beside it, then send it SIGTERM")
      .value("COMMAND");
  command.add_option("-p,--pid", &arguments->pid, "plan for a process that runs under Farside already")
      .value("PID")
      .positive();
  command.add_flag("--blocks", &arguments->predicted, "observe all accesses with valgrind, for blocks of all sizes");
  command.add_option("--seconds", &arguments->predict.seconds, "that -p samples, or --blocks observes; 0: to the end")
      .value("S")
      .non_negative()
      .show_default();
  command.add_flag("--check", &arguments->checked, "measure --shares, too, and put them beside what was computed");
  command
      .add_option("--record", &arguments->record,
                  "only observe one run, and write the pages that it accesses to this "
                  "file, for farside bench policies --traces")
      .value("FILE");
  command.add_option("--json", &arguments->json, "file for all figures, the machine and the commit").value("FILE");
  command.add_option("--svg", &arguments->svg, "file for a line chart").value("FILE");
  cli::add_table_options(command, &arguments->options, {"--local", "--slowdown", "--stats", "--metrics"});
  command.expect_program();
  command.set_footer(kHelp);
  command.set_action([arguments, program = std::move(program), &command] {
    Status suits = check_pid(command, *arguments, program);
    if (!suits.ok()) return fail(suits, kExitUsage);
    if (arguments->pid != 0) arguments->one_run.seconds = arguments->predict.seconds;
    return plan_program(*arguments, program);
  });
  return run_tool(command, std::move(words));
}

}  // namespace farside::plan
