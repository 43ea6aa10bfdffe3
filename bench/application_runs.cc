#include "bench/application_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/size.h"
#include "measure/configurations.h"
#include "measure/fault_costs.h"
#include "measure/ideal.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kProcessAllowance = 8 * kMiB;  // code, stacks, page tables, and Farside's own data count, too
constexpr double kMinLimit = 10, kLimitWithoutNative = 300;  // seconds
constexpr double kMoreThanItsShare = 1.25;
constexpr unsigned kAllNear = 100;

// Operations in each tenth of a second, as points. The last, incomplete one is left out.
json points_of_timeline(const json& tenths) {
  json points = json::array();
  for (size_t i = 0; i + 1 < tenths.size(); i++)
    points.push_back({(static_cast<double>(i) + 0.5) / 10, 10 * tenths[i].get<double>()});
  return points;
}

// The 99th percentile of the latency by the achieved throughput.
json points_of_load(const json& loads) {
  json points = json::array();
  for (const json& load : loads) points.push_back({load["achieved"], load["p99_us"]});
  return points;
}

json skipped(const std::string& reason) { return {{{"key", json::object()}, {"skipped", reason}}}; }

// The costs of faults and evictions, flat: "fault signal", "evict unmap".
json flat_costs(const json& costs) {
  json flat = json::object();
  for (const auto& [name, value] : costs.items()) {
    if (value.is_number()) flat[name] = value;
  }
  for (const json& part : costs["us_per_fault"]) flat["fault " + part[0].get<std::string>()] = part[1];
  for (const json& part : costs["us_per_eviction"]) flat["evict " + part[0].get<std::string>()] = part[1];
  return flat;
}

}  // namespace

Status ApplicationRuns::prepare() {
  Result<OwnRuns> prepared = OwnRuns::prepare(setup_);
  if (prepared.ok()) own_ = std::move(*prepared);
  return prepared.status();
}

// Twice the data: when a swap area is nearly full, the kernel frees the slots of pages that were swapped in.
Status ApplicationRuns::prepare_swap() {
  if (!settings_.zram) return Status::error(ECANCELED, "left out by --no-zram");
  auto swap = ZramSwap::create(2 * settings_.bytes);
  auto limit = swap.ok() ? MemoryLimit::create(settings_.bytes) : swap.status();
  if (limit.ok()) swap_ = std::move(*swap);
  return limit.status();
}

Result<json> ApplicationRuns::round_trip() const {
  FarMemoryConfig far = setup_.far(settings_.transport);
  far.address = address(settings_.transport);
  return measure_round_trip(far);
}

Status ApplicationRuns::use(const Application& app, const std::string& run, bool is_native, const json& result) {
  if (result.is_array() && result[0].contains("skipped")) return left_out_.insert(run), Status();
  const json& figures = result.is_array() ? result[0]["figures"] : result;
  if (figures.contains("failed")) return Status::error(EIO, "{}", figures["failed"].get<std::string>());
  if (!figures.contains("checksum")) return {};
  std::string checksum = figures["checksum"];
  if (is_native) natives_.try_emplace(app.name, figures);
  std::string first = natives_.contains(app.name) ? natives_[app.name]["checksum"].get<std::string>() : checksum;
  return checksum == first ? Status() : Status::error(EIO, "results differ: {}, natively {}", checksum, first);
}

std::string ApplicationRuns::path(const Application& app) const {
  return fmt::format("{}/{}", settings_.apps_dir, app.name);
}

Result<json> ApplicationRuns::run_native(const Application& app) const {
  return measured(app, program(app, {.name = kNative}));
}

Result<json> ApplicationRuns::run(const ApplicationRun& run) const {
  if (run.configuration.trace) return trace(run);
  return run.configuration.swap ? run_on_swap(run) : run_far(run);
}

Result<json> ApplicationRuns::run_far(const ApplicationRun& run) const {
  const auto& [app, configuration, share, transport] = run;
  std::string policy = configuration.hints ? app.hinted_policy : "2q";
  std::string file = own_.directory->file("stats.json");
  unlink(file.c_str());
  Words words = launcher("run", run);
  words.insert(words.end(), {"--tune", "policy=" + policy, "--stats=json:" + file});
  words.insert(words.end(), configuration.options.begin(), configuration.options.end());
  Result<json> figures = measured(app, with_program(words, run));
  json statistics = json::parse(read_file(file), nullptr, false);
  if (!figures.ok() || !figures->is_object() || !statistics.is_object()) return figures;
  json costs = costs_of(statistics);
  warn_of_minimum(run, costs);
  figures->update({{"fetches", busiest_fetches(statistics)}, {"costs", flat_costs(costs)}});
  json rows = {make_row(json::object(), *figures)};
  if (configuration.ideal) add_ideal(app, (*figures)["fetches"], &rows);
  return rows;
}

// The limit is a share of the memory that the application used natively.
Result<json> ApplicationRuns::run_on_swap(const ApplicationRun& run) const {
  auto limited = MemoryLimit::create(share_of_native(run));
  if (!limited.ok()) return limited.status();
  Result<json> figures = measured(run.app, with_program((*limited)->launcher(), run));
  // The kernel kills programs whose swapping makes too little progress. That is a result.
  bool killed = figures.ok() && figures->is_object() && figures->contains("failed") && (*limited)->kills() > 0;
  return killed ? Result<json>(skipped("killed by the kernel in its memory limit")) : figures;
}

// The share of the faults, in a run without hints, that occur at lines with hints.
Result<json> ApplicationRuns::trace(const ApplicationRun& run) const {
  std::string out = own_.directory->file("trace");
  Words words = launcher("trace", run);
  words.insert(words.end(), {"--out", out});
  Result<json> figures = measured(run.app, with_program(words, run));
  json found = json::parse(read_file(out + "/trace.json"), nullptr, false);
  if (!figures.ok() || !figures->is_object() || !found.is_object()) return figures;
  double faults = 0, hinted = 0;
  for (const json& place : found["places"]) {
    double here = place["faults"].get<double>() - place["kinds"].value("allocation", 0.0);
    faults += here;
    if (place["hinted_at"].is_number()) hinted += here;
  }
  return json{{"faults", faults}, {"coverage", hinted / std::max(1.0, faults)}, {"hints", found["hints"].size()}};
}

std::string ApplicationRuns::address(const std::string& transport) const {
  if (transport == "tcp") return setup_.server().tcp();
  std::string added = settings_.latency_us > 0 ? fmt::format("?latency_us={:g}", settings_.latency_us) : "";
  return setup_.server().shm() + added;
}

uint64_t ApplicationRuns::share_of_native(const ApplicationRun& run) const {
  double whole = native(run.app, "peak_bytes").value_or(static_cast<double>(settings_.bytes));
  return static_cast<uint64_t>(whole * run.share / 100) + kProcessAllowance;
}

std::string ApplicationRuns::local(const ApplicationRun& run) const {
  if (near_ == NearOf::kHeap || run.share == kAllNear) return fmt::format("{}%", run.share);
  return std::to_string(share_of_native(run));
}

Words ApplicationRuns::launcher(const char* command, const ApplicationRun& run) const {
  return {own_.farside, command, "--quiet", "--local", local(run), "--far", address(run.transport)};
}

Words ApplicationRuns::program(const Application& app, const Configuration& configuration) const {
  Words words = {path(app),
                 "--size",
                 std::to_string(settings_.bytes),
                 "--seed",
                 std::to_string(settings_.seed),
                 "--threads",
                 std::to_string(settings_.app_threads),
                 "--hints",
                 configuration.hints ? "on" : "off"};
  words.insert(words.end(), app.options.begin(), app.options.end());
  words.insert(words.end(), configuration.app_options.begin(), configuration.app_options.end());
  return words;
}

// A launcher of Farside ends with "--", that of a memory limit as it is.
Words ApplicationRuns::with_program(Words words, const ApplicationRun& run) const {
  if (words[0] == own_.farside) words.emplace_back("--");
  Words app_words = program(run.app, run.configuration);
  words.insert(words.end(), app_words.begin(), app_words.end());
  return words;
}

std::optional<double> ApplicationRuns::native(const Application& app, const char* figure) const {
  auto found = natives_.find(app.name);
  if (found == natives_.end() || !found->second.contains(figure)) return std::nullopt;
  return found->second[figure].get<double>();
}

// {"failed": reason} where the program fails.
Result<json> ApplicationRuns::measured(const Application& app, const Words& words) const {
  auto seconds = native(app, "wall_s");
  double limit = seconds ? std::max(kMinLimit, settings_.cut_off * *seconds) : kLimitWithoutNative;
  Result<CapturedRun> run = run_captured(words, setup_.hold(), {.seconds = limit});
  if (!run.ok()) return run.status();
  if (run->cut_off) return skipped(run->outcome());
  if (!run->succeeded()) return json{{"failed", run->outcome()}};
  json output = json::parse(run->output, nullptr, false);
  if (!output.is_object() || !output.contains(app.figure) || !output.contains("checksum"))
    return json{{"failed", "unexpected output: " + run->output.substr(0, 100)}};
  return figures_of(app, *run, output);
}

json ApplicationRuns::figures_of(const Application& app, const CapturedRun& run, const json& output) const {
  json figures = {{"operations_per_s", output[app.figure]},
                  {"checksum", output["checksum"]},
                  {"wall_s", run.seconds},
                  {"peak_bytes", run.peak_bytes}};
  for (const char* name : {"fill_s", "run_s", "p99_us", "operations", "misses", "objects_taken", "fetched_bytes"}) {
    if (output.contains(name)) figures[name] = output[name];
  }
  if (output.contains("timeline")) figures["timeline"] = points_of_timeline(output["timeline"]);
  if (output.contains("curve")) figures["load"] = points_of_load(output["curve"]);
  if (auto whole = native(app, "operations_per_s"))
    figures["of_native"] = 100 * output[app.figure].get<double>() / *whole;
  return figures;
}

// Of the whole run including the filling of data, because the fetches are counted over the whole run.
void ApplicationRuns::add_ideal(const Application& app, uint64_t fetches, json* rows) const {
  auto fill = native(app, "fill_s"), run = native(app, "run_s"), whole = native(app, "operations_per_s");
  if (!fill || !run || !whole) return;
  double share = Ideal{*fill + *run, round_trip_us_}.throughput(fetches);
  rows->push_back(
      make_row({{"configuration", "ideal"}}, {{"of_native", 100 * share}, {"operations_per_s", *whole * share}}));
}

// The pager has a minimum of near memory.
void ApplicationRuns::warn_of_minimum(const ApplicationRun& run, const json& costs) const {
  if (near_ == NearOf::kNative) return;
  uint64_t near = costs["near_bytes"], heap = costs["heap_bytes"];
  if (static_cast<double>(near) * 100 <= kMoreThanItsShare * run.share * static_cast<double>(heap)) return;
  log(LogLevel::kWarning, "{}, {}% near: {} of {} were near, the minimum; give a larger --size", run.app.name,
      run.share, format_size(near), format_size(heap));
}

namespace {

Measurement unavailable(const std::string& what, const Status& why) {
  return {
      .key = {{"unavailable", what}}, .name = what, .run = [why] { return why; }, .may_fail = true, .in_parent = true};
}

// The measurements of a plan.
class Planner {
 public:
  Planner(const Setup& setup, const ApplicationPlan& plan)
      : settings_(setup.settings()), plan_(plan), runs_(std::make_shared<ApplicationRuns>(setup, plan.near)) {}

  std::vector<Measurement> all() {
    if (Status prepared = runs_->prepare(); !prepared.ok()) return {unavailable("applications", prepared)};
    Status swap = Settings::wants(settings_.configurations, kSwap) ? runs_->prepare_swap() : Status();
    has_swap_ = swap.ok();
    if (!has_swap_) all_.push_back(unavailable(kSwap, swap));
    if (std::ranges::any_of(plan_.configurations, &Configuration::ideal)) add_round_trip();
    for (const Application& app : plan_.apps) {
      if (!Settings::wants(settings_.apps, app.name)) continue;
      if (access(runs_->path(app).c_str(), X_OK) == 0) add(app);
      else all_.push_back(unavailable(app.name, Status::error(ENOENT, "not built")));
    }
    return std::move(all_);
  }

 private:
  void add_round_trip() {
    all_.push_back({.key = {{"link", settings_.transport}},
                    .name = "round trip",
                    .run = [runs = runs_] { return runs->round_trip(); },
                    .use = [runs = runs_](const json& result) { return runs->use_round_trip(result["us"]); }});
  }

  // The configurations take turns. The native run of an application is its first: the limits of the others depend on
  // it.
  void add(const Application& app) {
    add(app, {{"configuration", kNative}, {"near", kAllNear}}, [runs = runs_, &app] { return runs->run_native(app); });
    for (const std::string& transport : plan_.transports) {
      for (unsigned share : settings_.shares) {
        for (const Configuration& c : plan_.configurations) {
          if (wants(app, c, transport)) add({app, c, share, transport});
        }
      }
    }
  }

  // Swap has no transport: it is measured once.
  bool wants(const Application& app, const Configuration& c, const std::string& transport) const {
    if (!Settings::wants(settings_.configurations, c.name) || (c.hints && !app.hinted_policy)) return false;
    return !c.swap || (has_swap_ && transport == plan_.transports[0]);
  }

  void add(const ApplicationRun& run) {
    json key = {{"configuration", run.configuration.name}, {"near", run.share}};
    if (!run.configuration.swap) key["transport"] = run.transport;
    add(run.app, key, [runs = runs_, run] { return runs->run(run); });
  }

  void add(const Application& app, json key, const std::function<Result<json>()>& run) {
    std::string configuration = key["configuration"];
    std::string transport = plan_.transports.size() > 1 ? key.value("transport", "") : "";
    std::string name = fmt::format("{}, {}{}{}, {}%", app.name, configuration, transport.empty() ? "" : ", ", transport,
                                   key["near"].get<unsigned>());
    bool is_native = configuration == kNative;
    key["app"] = app.name;
    all_.push_back(
        {.key = key,
         .name = name,
         .run = [=,
                 runs = runs_] { return runs->is_left_out(name) ? skipped("an earlier repetition was ended") : run(); },
         .in_parent = true,
         .use = [=, runs = runs_, &app](const json& made) { return runs->use(app, name, is_native, made); }});
  }

  const Settings& settings_;
  const ApplicationPlan& plan_;
  std::shared_ptr<ApplicationRuns> runs_;
  bool has_swap_ = false;
  std::vector<Measurement> all_;
};

}  // namespace

std::vector<Measurement> application_measurements(const Setup& setup, const ApplicationPlan& plan) {
  return Planner(setup, plan).all();
}

}  // namespace farside::bench
