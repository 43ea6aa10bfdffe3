// farside plan: how much near memory a program needs, measured at several shares and compared with an ideal system.
#include "tools/plan/plan.h"

#include <fmt/ranges.h>

#include <memory>

#include "cli/run.h"
#include "cli/tools.h"
#include "command/describe.h"
#include "launch/preload.h"
#include "report/files.h"
#include "tools/plan/measure.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/predict.h"
#include "tools/plan/predict_report.h"

namespace farside::plan {
namespace {

constexpr unsigned kMaxRepetitions = 100;

constexpr const char* kHelp =
    "Runs the program natively and over far memory at each share of near memory, without input and output. Prints the\n"
    "throughput beside that of an ideal system, in which a fault that fetches costs the latency of the link and "
    "nothing\n"
    "else. The latency is measured; --latency adds curves for other links. Also prints the causes of the difference, "
    "and\n"
    "the smallest share that is fast enough. See docs/guide/plan.md.\n\n"
    "With --predict no share is measured. One run is observed with valgrind, which takes some hundred times as long "
    "as\n"
    "the program alone. Misses, access times and slowdowns are computed from it for every share, for blocks of 64 B "
    "to\n"
    "2 MiB, over several links and on published systems.\n\n"
    "Examples:\n"
    "  farside plan -- sort big.txt\n"
    "  farside plan --predict --seconds 300 --slowdown 20% --svg plan.svg -- ./job small.csv\n"
    "  farside plan --predict --check --shares 25,50,75 -- ./job small.csv\n"
    "  farside plan --record sort.pages -- sort small.txt\n"
    "  farside plan --shares 10,25,50,100 --latency 3.9 --repeat 3 --json plan.json --svg plan.svg -- ./job data.csv\n"
    "  farside plan --slowdown 25% --far tcp://10.0.0.2:7170 --token-file secret -- ./job data.csv";

struct PlanArguments {
  cli::GivenOptions options;
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
  a->settings.slowdown = a->predict.slowdown = share->share;
  a->predict.latencies = a->settings.latencies;
  auto& shares = a->settings.shares;
  std::ranges::sort(shares);
  shares.erase(std::unique(shares.begin(), shares.end()), shares.end());
  return {};
}

// The prediction; with --check also the measurement.
Result<nlohmann::json> predict(const PlanArguments& a, const cli::RunSettings& run, const std::string& path,
                               const std::vector<std::string>& program) {
  auto document = predict_plan(a.predict, run, path, program);
  if (!document.ok() || !a.checked) return document;
  auto measured = measure_plan(a.settings, run, path, program);
  if (!measured.ok()) return measured.status();
  add_check(*measured, &*document);
  return document;
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
  Result<std::string> path = cli::find_runnable("farside plan", program, &exit_status);
  if (!path.ok()) return fail(path.status(), exit_status);
  if (!a.record.empty()) return record(a, *run, *path, program);
  Result<nlohmann::json> document =
      a.predicted ? predict(a, *run, *path, program) : measure_plan(a.settings, *run, *path, program);
  if (!document.ok()) return fail(document.status());
  fputs((a.predicted ? predict_text(*document) : plan_text(*document)).c_str(), stdout);
  Status written = write_file(a.json, document->dump(2) + "\n");
  if (written.ok() && !a.svg.empty()) {
    auto charts = a.predicted ? predict_charts(*document) : plan_chart(*document);
    written = write_file(a.svg, to_svg(charts, fmt::format("{}", fmt::join(program, " "))));
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
  command.add_option("--shares", &settings.shares, "percent of the heap that may be near, separated by commas")
      .value("LIST")
      .separator(',')
      .range(1u, 100u)
      .show_default();
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
  Option& predict =
      command.add_flag("--predict", &arguments->predicted, "predict from one observed run instead of measuring shares");
  command.add_option("--seconds", &arguments->predict.seconds, "that the observed run may take; 0: any time")
      .value("S")
      .non_negative()
      .needs(predict)
      .show_default();
  command.add_flag("--check", &arguments->checked, "measure --shares, too, and put them beside what was predicted")
      .needs(predict);
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
  command.set_action([arguments, program = std::move(program)] { return plan_program(*arguments, program); });
  return run_tool(command, std::move(words));
}

}  // namespace farside::plan
