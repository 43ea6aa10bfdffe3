// `farside bench all`: every application of bench/apps natively, over far memory with and without hints and without
// huge pages, and on kernel swap, at each share of near memory, beside an ideal system.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/size.h"
#include "bench/suites.h"
#include "launch/installation.h"
#include "launch/preload.h"
#include "launch/run_captured.h"
#include "measure/fault_costs.h"
#include "measure/ideal.h"
#include "report/files.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr uint64_t kProcessAllowance = 8 * kMiB;             // code, stacks and page tables count in a limit, too
constexpr double kMinLimit = 10, kLimitWithoutNative = 300;  // seconds
constexpr double kMoreThanItsShare = 1.25;

struct Application {
  const char* name;
  const char* hinted_policy;              // policy for the run with hints; nullptr: no hints
  const char* figure = "ops_per_s";       // the member of its output that is compared
  std::vector<std::string> options = {};  // besides those of all applications
};
const Application kApplications[] = {
    {"psrs_sort", "2q"},
    {"analytics", "2q"},
    {"web_frontend", "priority"},
    {"kv_server", "2q"},
    {"checksum_scan", "2q"},
    {"gups", "2q"},
    {"cross_sections", "priority"},
    {"word_count", "2q"},
    {"pagerank", "priority"},
    // Its request rate is fixed. The compared value is the number of requests that a closed loop completes.
    {"memcached_load", nullptr, "capacity_per_s", {"--operations", "10000", "--rates", "5000,10000,20000,40000,80000"}},
};

constexpr const char* kNative = "native";
constexpr unsigned kAllNear = 100;
struct Configuration {
  const char* name;
  bool hints = false, swap = false, trace = false;
  Words options = {};  // of `farside run`
};
const Configuration kConfigurations[] = {{.name = "far"},
                                         {.name = "pages", .options = {"--huge", "never"}},
                                         {.name = "hinted", .hints = true},
                                         {.name = kSwap, .swap = true},
                                         {.name = "traced", .trace = true}};

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

class Applications {
 public:
  explicit Applications(const Setup& setup) : setup_(setup), settings_(setup.settings()) {}

  Status prepare() {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    Result<Installation> installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    return hand_over_token(setup_.server().token());
  }

  // Twice the data: when a swap area is nearly full, the kernel frees the slots of pages that were swapped in.
  Status prepare_swap() {
    if (!settings_.zram) return Status::error(ECANCELED, "left out by --no-zram");
    auto swap = ZramSwap::create(2 * settings_.bytes);
    auto limit = swap.ok() ? MemoryLimit::create(settings_.bytes) : swap.status();
    if (limit.ok()) swap_ = std::move(*swap);
    return limit.status();
  }

  Result<json> round_trip() const {
    FarMemoryConfig far = setup_.far(settings_.transport);
    far.address = address();
    return measure_round_trip(far);
  }
  Status use_round_trip(double us) { return round_trip_us_ = us, Status(); }

  Status use(const Application& app, const std::string& run, bool is_native, const json& result) {
    if (result.is_array() && result[0].contains("skipped")) return left_out_.insert(run), Status();
    const json& figures = result.is_array() ? result[0]["figures"] : result;
    if (figures.contains("failed")) return Status::error(EIO, "{}", figures["failed"].get<std::string>());
    if (!figures.contains("checksum")) return {};
    std::string checksum = figures["checksum"];
    if (is_native) natives_.try_emplace(app.name, figures);
    std::string first = natives_.contains(app.name) ? natives_[app.name]["checksum"].get<std::string>() : checksum;
    return checksum == first ? Status() : Status::error(EIO, "results differ: {}, natively {}", checksum, first);
  }

  std::string path(const Application& app) const { return fmt::format("{}/{}", settings_.apps_dir, app.name); }

  // What was ended once is not run again.
  bool is_left_out(const std::string& run) const { return left_out_.contains(run); }

  Result<json> run_native(const Application& app) const { return measured(app, program(app, false)); }

  Result<json> run_far(const Application& app, const Configuration& configuration, unsigned share) const {
    std::string policy = configuration.hints ? app.hinted_policy : "2q";
    std::string file = directory_->file("stats.json");
    unlink(file.c_str());
    Words words = launcher("run", share);
    words.insert(words.end(), {"--tune", "policy=" + policy, "--stats=json:" + file});
    words.insert(words.end(), configuration.options.begin(), configuration.options.end());
    Result<json> figures = measured(app, with_program(words, app, configuration.hints));
    json statistics = json::parse(read_file(file), nullptr, false);
    if (!figures.ok() || !figures->is_object() || !statistics.is_object()) return figures;
    json costs = costs_of(statistics);
    warn_of_minimum(app, share, costs);
    figures->update({{"fetches", busiest_fetches(statistics)}, {"costs", flat_costs(costs)}});
    json rows = {make_row(json::object(), *figures)};
    if (configuration.name == kConfigurations[0].name) add_ideal(app, (*figures)["fetches"], &rows);
    return rows;
  }

  // The limit is a share of the memory that the application used natively.
  Result<json> run_on_swap(const Application& app, const Configuration&, unsigned share) const {
    double whole = native(app, "peak_bytes").value_or(static_cast<double>(settings_.bytes));
    auto limited = MemoryLimit::create(static_cast<uint64_t>(whole * share / 100) + kProcessAllowance);
    if (!limited.ok()) return limited.status();
    Result<json> figures = measured(app, with_program((*limited)->launcher(), app, false));
    // The kernel kills programs whose swapping makes too little progress. That is a result.
    bool killed = figures.ok() && figures->is_object() && figures->contains("failed") && (*limited)->kills() > 0;
    return killed ? Result<json>(skipped("killed by the kernel in its memory limit")) : figures;
  }

  // The share of the faults, in a run without hints, that occur at lines with hints.
  Result<json> trace(const Application& app, const Configuration&, unsigned share) const {
    std::string out = directory_->file("trace");
    Words words = launcher("trace", share);
    words.insert(words.end(), {"--out", out});
    Result<json> figures = measured(app, with_program(words, app, false));
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

 private:
  std::string address() const {
    if (settings_.transport == "tcp") return setup_.server().tcp();
    std::string added = settings_.latency_us > 0 ? fmt::format("?latency_us={:g}", settings_.latency_us) : "";
    return setup_.server().shm() + added;
  }

  Words launcher(const char* command, unsigned share) const {
    return {farside_, command, "--quiet", "--local", fmt::format("{}%", share), "--far", address()};
  }

  Words program(const Application& app, bool hints) const {
    Words words = {path(app),
                   "--size",
                   std::to_string(settings_.bytes),
                   "--seed",
                   std::to_string(settings_.seed),
                   "--threads",
                   std::to_string(settings_.app_threads),
                   "--hints",
                   hints ? "on" : "off"};
    words.insert(words.end(), app.options.begin(), app.options.end());
    return words;
  }

  // A launcher of Farside ends with "--", that of a memory limit as it is.
  Words with_program(Words words, const Application& app, bool hints) const {
    if (words[0] == farside_) words.emplace_back("--");
    Words app_words = program(app, hints);
    words.insert(words.end(), app_words.begin(), app_words.end());
    return words;
  }

  std::optional<double> native(const Application& app, const char* figure) const {
    auto found = natives_.find(app.name);
    if (found == natives_.end() || !found->second.contains(figure)) return std::nullopt;
    return found->second[figure].get<double>();
  }

  // {"failed": reason} where the program fails.
  Result<json> measured(const Application& app, const Words& words) const {
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

  json figures_of(const Application& app, const CapturedRun& run, const json& output) const {
    json figures = {{"operations_per_s", output[app.figure]},
                    {"checksum", output["checksum"]},
                    {"wall_s", run.seconds},
                    {"peak_bytes", run.peak_bytes}};
    for (const char* name : {"fill_s", "run_s", "p99_us"}) {
      if (output.contains(name)) figures[name] = output[name];
    }
    if (output.contains("timeline")) figures["timeline"] = points_of_timeline(output["timeline"]);
    if (output.contains("curve")) figures["load"] = points_of_load(output["curve"]);
    if (auto whole = native(app, "operations_per_s"))
      figures["of_native"] = 100 * output[app.figure].get<double>() / *whole;
    return figures;
  }

  // Of the whole run including the filling of data, because the fetches are counted over the whole run.
  void add_ideal(const Application& app, uint64_t fetches, json* rows) const {
    auto fill = native(app, "fill_s"), run = native(app, "run_s"), whole = native(app, "operations_per_s");
    if (!fill || !run || !whole) return;
    double share = Ideal{*fill + *run, round_trip_us_}.throughput(fetches);
    rows->push_back(
        make_row({{"configuration", "ideal"}}, {{"of_native", 100 * share}, {"operations_per_s", *whole * share}}));
  }

  // The pager has a minimum of near memory.
  void warn_of_minimum(const Application& app, unsigned share, const json& costs) const {
    uint64_t near = costs["near_bytes"], heap = costs["heap_bytes"];
    if (static_cast<double>(near) * 100 <= kMoreThanItsShare * share * static_cast<double>(heap)) return;
    log(LogLevel::kWarning, "{}, {}% near: {} of {} were near, the minimum; give a larger --size", app.name, share,
        format_size(near), format_size(heap));
  }

  const Setup& setup_;
  const Settings& settings_;
  std::map<std::string, json> natives_;  // the figures of the first native runs
  std::set<std::string> left_out_;
  double round_trip_us_ = 0;
  std::string farside_;  // path of the program
  std::unique_ptr<PrivateDirectory> directory_;
  std::unique_ptr<ZramSwap> swap_;
};

using Run = Result<json> (Applications::*)(const Application&, const Configuration&, unsigned share) const;

Measurement unavailable(const std::string& what, const Status& why) {
  return {
      .key = {{"unavailable", what}}, .name = what, .run = [why] { return why; }, .may_fail = true, .in_parent = true};
}

// Adds a measurement of an application, whose results the others depend on.
void add(std::shared_ptr<Applications> apps, const Application& app, const char* configuration, unsigned share,
         const std::function<Result<json>()>& run, std::vector<Measurement>* all) {
  std::string name = fmt::format("{}, {}, {}%", app.name, configuration, share);
  all->push_back({.key = {{"app", app.name}, {"configuration", configuration}, {"near", share}},
                  .name = name,
                  .run = [=] { return apps->is_left_out(name) ? skipped("an earlier repetition was ended") : run(); },
                  .in_parent = true,
                  .use = [=, &app](const json& made) { return apps->use(app, name, configuration == kNative, made); }});
}

// The configurations take turns. The native run of an application is its first: the limits of the others depend on it.
void add(std::shared_ptr<Applications> apps, const Application& app, const Settings& s, bool has_swap,
         std::vector<Measurement>* all) {
  add(
      apps, app, kNative, kAllNear, [apps, &app] { return apps->run_native(app); }, all);
  for (unsigned share : s.shares) {
    for (const Configuration& c : kConfigurations) {
      bool wanted = Settings::wants(s.configurations, c.name) && !(c.hints && !app.hinted_policy);
      if (!wanted || (c.swap && !has_swap)) continue;
      Run run = c.trace ? &Applications::trace : c.swap ? &Applications::run_on_swap : &Applications::run_far;
      add(
          apps, app, c.name, share, [apps, &app, &c, share, run] { return (*apps.*run)(app, c, share); }, all);
    }
  }
}

std::vector<Measurement> measurements(const Setup& setup) {
  const Settings& s = setup.settings();
  auto apps = std::make_shared<Applications>(setup);
  if (Status prepared = apps->prepare(); !prepared.ok()) return {unavailable("all", prepared)};
  Status swap = Settings::wants(s.configurations, kSwap) ? apps->prepare_swap() : Status();
  std::vector<Measurement> all;
  if (!swap.ok()) all.push_back(unavailable(kSwap, swap));
  all.push_back({.key = {{"link", s.transport}},
                 .name = "round trip",
                 .run = [apps] { return apps->round_trip(); },
                 .use = [apps](const json& result) { return apps->use_round_trip(result["us"]); }});
  for (const Application& app : kApplications) {
    if (!Settings::wants(s.apps, app.name)) continue;
    if (access(apps->path(app).c_str(), X_OK) == 0) add(apps, app, s, swap.ok(), &all);
    else all.push_back(unavailable(app.name, Status::error(ENOENT, "not built")));
  }
  return all;
}

Column cost(const char* head, const char* figure) { return col(head, figure, 2); }

std::vector<Table> tables() {
  const json only = {{"configuration", {"far", "pages", "hinted", "ideal", kSwap}}}, far = {{"configuration", "far"}};
  return {
      table("native", {"app"},
            {col("thousand operations/s", "operations_per_s", 1, 1000), col("fill s", "fill_s", 2),
             col("run s", "run_s", 2), col("p99 us", "p99_us"), col("peak MiB", "peak_bytes", 0, kMiB)})
          .of({{"configuration", kNative}}),
      table("% of native", {"app", "near"}, {col("", "of_native", 0)})
          .by("configuration")
          .of(only)
          .with("ideal: if a fetch cost the link's latency and nothing else"),
      table("p99 us", {"app", "near"}, {col("", "p99_us")}).by("configuration").of(only),
      table("us per fault", {"app", "near"},
            {col("faults", "costs/faults", 0), col("fetching", "costs/fetches", 0), col("busiest thread", "fetches", 0),
             cost("signal", "costs/fault signal"), cost("lookup", "costs/fault lookup"),
             cost("frame wait", "costs/fault frame wait"), cost("page wait", "costs/fault page wait"),
             cost("fetch", "costs/fault fetch"), cost("map", "costs/fault map"), cost("policy", "costs/fault policy"),
             cost("other", "costs/fault other"), cost("return", "costs/fault return")})
          .of(far),
      table(
          "us per evicted page", {"app", "near"},
          {col("evictions", "costs/evictions", 0), col("dirty, %", "costs/dirty_evictions", 0, 0.01, "costs/evictions"),
           col("frame wait p99", "costs/frame_wait_p99_us"), cost("select", "costs/evict select"),
           cost("hold", "costs/evict hold"), cost("unmap", "costs/evict unmap"), cost("write", "costs/evict write"),
           cost("release", "costs/evict release"), cost("evictors' cpu", "costs/evict evictors' cpu")})
          .of(far),
      table("faults at lines with hints", {"app", "near"},
            {col("hints", "hints", 0), col("% of the faults", "coverage", 0, 0.01)}),
      table("link", {"link"}, {col("us per page", "us", 2)})};
}

}  // namespace

// A chart has the configurations in a fixed order, so that each has the same colour in all of them.
Suite applications_suite() {
  return {
      .name = "applications",
      .measurements = measurements,
      .tables = tables(),
      .charts = {chart("", "% of its memory near", "% of native", "near", {"of_native"}, {"configuration"}).by({"app"}),
                 chart("", "seconds", "operations/s", nullptr, {"timeline"}, {"configuration"})
                     .by({"app", "near"})
                     .to("_timelines"),
                 chart("", "operations/s", "p99 us", nullptr, {"load"}, {"configuration"})
                     .by({"app", "near"})
                     .up_to(0, 5000)
                     .to("_latency")}};
}

std::vector<std::string> application_names() {
  std::vector<std::string> names;
  for (const Application& app : kApplications) names.emplace_back(app.name);
  return names;
}

}  // namespace farside::bench
