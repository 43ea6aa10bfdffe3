#include "tools/plan/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "launch/installation.h"
#include "launch/run_captured.h"
#include "measure/configurations.h"
#include "measure/fault_costs.h"
#include "measure/process.h"
#include "measure/statistics.h"
#include "pager/pages/budget.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::plan {
namespace {

using nlohmann::json;

constexpr const char* kNative = "native";

// The results of one run over far memory.
struct FarRun {
  double seconds;
  json statistics;
};

class PlanRun {
 public:
  PlanRun(const PlanSettings& settings, const cli::RunSettings& run, std::vector<std::string> program,
          const SignalHold& hold)
      : settings_(settings),
        run_(run),
        program_(std::move(program)),
        hold_(hold),
        progress_(1 + settings.repetitions * (1 + settings.shares.size()), run.options.quiet) {}

  Status prepare() {
    auto installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    return measure_link();
  }

  // Native and all shares alternate, so that drift of the machine affects all of them alike.
  Status repeat() {
    Status done = run_natively();
    for (size_t i = 0; done.ok() && i < settings_.shares.size(); i++) done = run_over_far_memory(settings_.shares[i]);
    return done;
  }

  bool has_points() const { return !far_.empty(); }

  json document(bool complete) const {
    json made = {{"complete", complete},
                 {"command", "plan"},
                 {"program", program_},
                 {"machine", machine_json()},
                 {"round_trip_us", round_trip_us_},
                 {"native_s", summary(native_s_)},
                 {"points", json::array()}};
    made["settings"] = {{"latencies_us", settings_.latencies},
                        {"repetitions", settings_.repetitions},
                        {"slowdown", settings_.slowdown}};
    for (const auto& [share, runs] : far_) made["points"].push_back(point(share, runs));
    made["transport"] = far_.begin()->second.front().statistics["processes"][0].value("transport", "");
    return made;
  }

 private:
  // The embedded servers of the runs end with the runs, so the link is measured with a separate server.
  Status measure_link() {
    progress_.step("round trip");
    FarMemoryConfig far = {.address = run_.options.far_address, .token = run_.options.token};
    std::unique_ptr<ServerProcess> server;
    if (run_.embedded()) {
      auto started = ServerProcess::start(hold_, 4 * remote::kSlabBytes);
      if (!started.ok()) return started.status();
      server = std::move(*started);
      far.address = server->shm();
      far.token = server->token();
    }
    Result<json> trip = run_in_child(hold_, [&] { return measure_round_trip(far); });
    if (trip.ok()) round_trip_us_ = (*trip)["us"];
    return trip.status();
  }

  Status run_natively() {
    progress_.step(kNative);
    Result<CapturedRun> done = run_captured(program_, hold_, {.keep_output = false});
    if (!done.ok()) return done.status();
    if (!done->succeeded()) return Status::error(ECHILD, "the program fails natively: {}", done->outcome());
    native_s_.push_back(done->seconds);
    return {};
  }

  std::string local_of(unsigned share) const {
    if (settings_.heap_bytes == 0) return fmt::format("{}%", share);
    return fmt::format("{:.0f}",
                       std::max(pager::Budget::kMinPages * kPageSize * 1.0, share / 100.0 * settings_.heap_bytes));
  }

  Status run_over_far_memory(unsigned share) {
    progress_.step(fmt::format("{}% near", share));
    std::string file = directory_->file("stats.json");
    std::vector<std::string> words = {farside_, "run", "--quiet", "--local", local_of(share), "--stats=json:" + file,
                                      "--"};
    words.insert(words.end(), program_.begin(), program_.end());
    Result<CapturedRun> done = run_captured(words, hold_, {.keep_output = false});
    if (!done.ok()) return done.status();
    if (!done->succeeded()) return Status::error(ECHILD, "with {}% near the program fails: {}", share, done->outcome());
    json statistics = json::parse(std::ifstream(file), nullptr, false);
    if (!statistics.is_object() || statistics["processes"].empty()) {
      return Status::error(
          ENODATA,
          "with {}% near the program wrote no statistics: it ended neither by exit() nor by returning from main()",
          share);
    }
    // The process's own time, without that of the launcher.
    double seconds = statistics["totals"].value("seconds", done->seconds);
    far_[share].push_back({seconds, std::move(statistics)});
    return {};
  }

  static json point(unsigned share, const std::vector<FarRun>& runs) {
    std::vector<double> seconds, fetches;
    for (const FarRun& run : runs) {
      seconds.push_back(run.seconds);
      fetches.push_back(static_cast<double>(busiest_fetches(run.statistics)));
    }
    double middle = median(seconds);
    auto typical = std::ranges::find(runs, middle, &FarRun::seconds);  // the median is one of them
    return {{"share", share},
            {"fetches", static_cast<uint64_t>(median(fetches))},
            {"seconds", summary(seconds)},
            {"costs", costs_of(typical->statistics)}};
  }

  const PlanSettings& settings_;
  const cli::RunSettings& run_;
  std::vector<std::string> program_;
  std::string farside_;  // the path of the program farside
  const SignalHold& hold_;
  Progress progress_;
  std::unique_ptr<PrivateDirectory> directory_;
  double round_trip_us_ = 0;
  std::vector<double> native_s_;
  std::map<unsigned, std::vector<FarRun>> far_;  // by share
};

}  // namespace

Result<json> measure_plan(const PlanSettings& settings, const cli::RunSettings& run, const std::string& path,
                          const std::vector<std::string>& program) {
  SignalHold hold;
  std::vector<std::string> words = program;
  words[0] = path;
  PlanRun plan(settings, run, std::move(words), hold);
  Status done = plan.prepare();
  for (unsigned i = 0; done.ok() && i < settings.repetitions; i++) done = plan.repeat();
  bool stopped = done.code() == EINTR && plan.has_points();
  if (!done.ok() && !stopped) return done;
  return plan.document(done.ok());
}

}  // namespace farside::plan
