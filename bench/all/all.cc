#include "bench/all/all.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "abi/options.h"
#include "bench/all/workloads.h"
#include "launch/installation.h"
#include "launch/preload.h"
#include "launch/run_captured.h"
#include "measure/configurations.h"
#include "measure/costs.h"
#include "measure/process.h"
#include "measure/swap.h"
#include "report/files.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kPlainPolicy = "2q";
constexpr uint64_t kProcessAllowance = 8 * kMiB;  // code, stacks and page tables count in the limit, too
constexpr unsigned kTracedShare = 25;
constexpr double kMinLimit = 10, kLimitWithoutNative = 300;  // seconds

// Environment variables that change how programs run over far memory. The token is not one of them.
json far_variables() {
  json variables = json::object();
  for (const OptionRow& row : option_rows()) {
    const char* value = row.scope == Scope::kInternal ? nullptr : getenv(std::string(row.variable).c_str());
    if (value) variables[std::string(row.variable)] = value;
  }
  return variables;
}

json settings_json(const AllSettings& s) {
  return {{"size", s.size},
          {"seed", s.seed},
          {"threads", s.threads},
          {"transport", s.transport},
          {"latency_us", s.latency_us},
          {"variables", far_variables()},
          {"commit", build_commit()}};
}

json failure(const CapturedRun& run) { return {{run.cut_off ? "cut_off" : "failed", run.outcome()}}; }

// The application's output, plus measurements of its process.
json figures_of(const CapturedRun& run) {
  if (!run.succeeded()) return failure(run);
  json figures = json::parse(run.output, nullptr, false);
  if (!figures.is_object() || !figures.contains("ops_per_s") || !figures.contains("checksum")) {
    return {{"failed", "unexpected output: " + run.output.substr(0, 100)}};
  }
  figures["wall_s"] = run.seconds;
  figures["peak_bytes"] = run.peak_bytes;
  return figures;
}

class AllRun {
 public:
  AllRun(const AllSettings& settings, const SignalHold& hold, Results results)
      : settings_(settings), hold_(hold), results_(std::move(results)) {}

  const Results& results() const { return results_; }

  Status measure() {
    Status done = prepare();
    if (!done.ok()) return done;
    std::vector<Task> tasks = tasks_left();
    std::vector<std::string> traces = traces_left();
    Progress progress(tasks.size() + traces.size(), settings_.quiet);
    for (const Task& task : tasks) {
      progress.step(fmt::format("{} {}, {}% near", task.app, task.configuration, task.share));
      if (!results_.needs(task)) continue;  // an earlier repetition was cut off
      Result<json> record = run(task);
      if (!record.ok()) return record.status();
      Status put = results_.put(task, std::move(*record));
      if (!put.ok()) return put;
    }
    for (const std::string& app : traces) {
      progress.step(app + " traced");
      Result<json> record = trace(app);
      if (!record.ok()) return record.status();
      Status put = results_.put("traces", app, std::move(*record));
      if (!put.ok()) return put;
    }
    return {};
  }

 private:
  Status prepare() {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    Result<Installation> installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    auto server = ServerProcess::start(hold_, 4 * settings_.size + 32 * remote::kSlabBytes);
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    Status handed_over = hand_over_token(server_->token());
    if (!handed_over.ok()) return handed_over;
    Status done = find_available();
    return done.ok() ? measure_link() : done;
  }

  Status find_available() {
    Status done;
    for (const std::string& app : settings_.list.apps) {
      if (access(path_of(app).c_str(), X_OK) == 0) apps_.push_back(app);
      else if (done.ok()) done = results_.put("skipped", app, "not built in " + settings_.apps_dir);
    }
    if (done.ok() && apps_.empty()) done = Status::error(ENOENT, "there is no application in {}", settings_.apps_dir);
    configurations_ = settings_.list.configurations;
    if (!done.ok() || std::ranges::find(configurations_, kZram) == configurations_.end()) return done;
    // Twice the data: when a swap area is nearly full, the kernel frees the slots of pages that were swapped in.
    auto swap = ZramSwap::create(2 * settings_.size);
    auto limit = swap.ok() ? MemoryLimit::create(settings_.size) : swap.status();
    if (limit.ok()) {
      swap_ = std::move(*swap);
      return results_.put("settings", "zram_algorithm", swap_->algorithm());
    }
    std::erase(configurations_, kZram);
    return results_.put("skipped", kZram, limit.status().text());
  }

  Status measure_link() {
    if (results_.document().contains("link")) return {};
    FarMemoryConfig far = {.address = address(), .token = server_->token()};
    Result<json> trip = run_in_child(hold_, [&] { return measure_round_trip(far); });
    return trip.ok() ? results_.put("link", "round_trip_us", (*trip)["us"]) : trip.status();
  }

  std::vector<Task> tasks_left() const {
    TaskList list = settings_.list;
    list.apps = apps_;
    list.configurations = configurations_;
    std::vector<Task> tasks = tasks_of(list);
    std::erase_if(tasks, [this](const Task& task) { return !results_.needs(task); });
    return tasks;
  }

  std::vector<std::string> traces_left() const {
    std::vector<std::string> apps;
    for (const std::string& app : apps_) {
      const json& traces = results_.document()["traces"];
      bool known = traces.contains(app) && !traces[app].contains("failed");
      if (settings_.trace && !known) apps.push_back(app);
    }
    return apps;
  }

  std::string path_of(const std::string& app) const { return settings_.apps_dir + "/" + app; }

  std::string address() const {
    if (settings_.transport == "tcp") return server_->tcp();
    return server_->shm() + (settings_.latency_us > 0 ? fmt::format("?latency_us={:g}", settings_.latency_us) : "");
  }

  Words program(const std::string& app, bool hints) const {
    Words words = {path_of(app),
                   "--size",
                   std::to_string(settings_.size),
                   "--seed",
                   std::to_string(settings_.seed),
                   "--threads",
                   std::to_string(settings_.threads),
                   "--hints",
                   hints ? "on" : "off"};
    const Words& more = find_application(app)->options;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // The time limit of a run, in seconds.
  double limit(const std::string& app) const {
    auto native = median_of(results_.document(), app, kNative, 100, "wall_s");
    return native ? std::max(kMinLimit, settings_.cut_off * *native) : kLimitWithoutNative;
  }

  Result<json> run(const Task& task) {
    if (task.configuration == kZram) return run_on_swap(task);
    if (task.configuration != kNative) return run_far(task);
    Result<CapturedRun> done = run_captured(program(task.app, false), hold_, {.seconds = limit(task.app)});
    return done.ok() ? Result<json>(figures_of(*done)) : done.status();
  }

  Result<json> run_far(const Task& task) {
    bool hints = task.configuration == kHinted;
    std::string policy = hints ? find_application(task.app)->hinted_policy : kPlainPolicy;
    std::string file = directory_->file("stats.json");
    unlink(file.c_str());
    Words words = {farside_,
                   "run",
                   "--quiet",
                   "--local",
                   fmt::format("{}%", task.share),
                   "--tune",
                   "policy=" + policy,
                   "--far",
                   address(),
                   "--stats=json:" + file};
    if (task.configuration == kPages) words.insert(words.end(), {"--huge", "never"});
    words.push_back("--");
    Words app = program(task.app, hints);
    words.insert(words.end(), app.begin(), app.end());
    Result<CapturedRun> done = run_captured(words, hold_, {.seconds = limit(task.app)});
    if (!done.ok()) return done.status();
    json figures = figures_of(*done), statistics = json::parse(read_file(file), nullptr, false);
    if (!statistics.is_object() || !done->succeeded()) return figures;
    figures["policy"] = policy;
    figures["fetches"] = busiest_fetches(statistics);
    figures["costs"] = costs_of(statistics);
    return figures;
  }

  // The limit is a share of the memory that the application used natively.
  Result<json> run_on_swap(const Task& task) {
    auto native = median_of(results_.document(), task.app, kNative, 100, "peak_bytes");
    double whole = native ? *native : static_cast<double>(settings_.size);
    auto limited = MemoryLimit::create(static_cast<uint64_t>(whole * task.share / 100) + kProcessAllowance);
    if (!limited.ok()) return limited.status();
    Words words = (*limited)->launcher(), app = program(task.app, false);
    words.insert(words.end(), app.begin(), app.end());
    Result<CapturedRun> done = run_captured(words, hold_, {.seconds = limit(task.app)});
    if (!done.ok()) return done.status();
    // The kernel kills programs whose swapping makes too little progress. That is a result.
    if (!done->succeeded() && (*limited)->kills() > 0) {
      return json{{"killed", "killed by the kernel in its memory limit"}};
    }
    return figures_of(*done);
  }

  // The share of the faults, in a run without hints, that occur at lines with hints.
  Result<json> trace(const std::string& app) {
    std::string out = directory_->file("trace");
    Words words = {farside_, "trace",   "--quiet", "--local", fmt::format("{}%", kTracedShare),
                   "--far",  address(), "--out",   out,       "--"};
    Words plain = program(app, false);
    words.insert(words.end(), plain.begin(), plain.end());
    Result<CapturedRun> done = run_captured(words, hold_, {.seconds = limit(app) + kMinLimit});
    if (!done.ok()) return done.status();
    json found = json::parse(read_file(out + "/trace.json"), nullptr, false);
    if (!done->succeeded() || !found.is_object()) return json{{"failed", "farside trace: " + done->outcome()}};
    uint64_t faults = 0, hinted = 0;
    for (const json& place : found["places"]) {
      uint64_t here = place["faults"].get<uint64_t>() - place["kinds"].value("allocation", uint64_t{0});
      faults += here;
      if (place["hinted_at"].is_number()) hinted += here;
    }
    double coverage = faults ? static_cast<double>(hinted) / static_cast<double>(faults) : 0;
    return json{{"faults", faults},
                {"at_hinted_lines", hinted},
                {"coverage", coverage},
                {"hints", found["hints"].size()},
                {"places_of_95_percent", found["coverage_places"]}};
  }

  const AllSettings& settings_;
  const SignalHold& hold_;
  Results results_;
  std::vector<std::string> apps_, configurations_;
  std::string farside_;  // path of the program
  std::unique_ptr<PrivateDirectory> directory_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<ZramSwap> swap_;
};

}  // namespace

Status measure_applications(const AllSettings& settings, json* document) {
  SignalHold hold;
  Result<Results> results = Results::open(settings.out + "/" + kResultsFile, settings_json(settings), settings.fresh);
  if (!results.ok()) return results.status();
  AllRun run(settings, hold, std::move(*results));
  Status done = run.measure();
  *document = run.results().document();
  return done;
}

}  // namespace farside::bench
