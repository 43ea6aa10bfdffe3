#include "bench/paging.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "base/size.h"
#include "launch/installation.h"
#include "launch/ucx_relay.h"
#include "measure/configurations.h"
#include "measure/process.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char* kSwap = "zram swap";
constexpr const char* kUcx = "ucx";
constexpr const char* kUcxRoundTrip = "round trip ucx";

class PagingRun {
 public:
  PagingRun(const PagingSettings& settings, const SignalHold& hold)
      : settings_(settings), hold_(hold), progress_(settings.repetitions * configurations().size(), settings.quiet) {}

  Status prepare() {
    ucx::Settings ucx = prepare_ucx();
    auto server = ServerProcess::start(hold_, 2 * settings_.bytes + 32 * remote::kSlabBytes, "", ucx);
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    prepare_swap();
    return {};
  }

  // One repetition of every configuration. They alternate, so that drift of the machine affects all of them alike.
  Status repeat() {
    for (const auto& [name, work] : configurations()) {
      if (skipped_.contains(name)) continue;
      progress_.step(name);
      Result<json> result = run_in_child(hold_, work);
      if (!result.ok() && name == kSwap && result.status().code() != EINTR) {
        // The kernel may kill the process in its memory limit if swapping makes too little progress. The other
        // repetitions still count.
        log(LogLevel::kWarning, "{}: a repetition is left out: {}", name, result.status().text());
        continue;
      }
      if (!result.ok()) return Status::error(result.status().code(), "{}: {}", name, result.status().text());
      collected_[name].push_back(std::move(*result));
    }
    return {};
  }

  json document() const {
    json made = {{"benchmark", "paging"}, {"machine", machine_json()}, {"skipped", skipped_}};
    made["settings"] = {
        {"bytes", settings_.bytes},     {"local_share", settings_.local},       {"accesses", settings_.accesses},
        {"seconds", settings_.seconds}, {"repetitions", settings_.repetitions}, {"evictors", settings_.evictors}};
    if (swap_) made["settings"]["zram_algorithm"] = swap_->algorithm();
    made["cells"] = json::array();
    for (const auto& [name, runs] : collected_) add_configuration(name, runs, &made);
    return made;
  }

 private:
  struct Configuration {
    std::string name;
    std::function<Result<json>()> work;
  };

  std::vector<Configuration> configurations() const {
    using pager::Delivery;
    auto far = [this](bool shm, Delivery delivery, HugePages huge = HugePages::kAuto) {
      return [this, shm, delivery, huge] {
        FarMemoryConfig config = far_config(shm, delivery);
        config.huge = huge;
        return measure_far(settings_, config);
      };
    };
    auto ucx = [this] {
      FarMemoryConfig config = far_config(false, Delivery::kSignal);
      config.address = server_->ucx();
      config.ucx_relay = ucx_relay_->socket();
      return config;
    };
    std::vector<Configuration> all = {
        {"native", [this] { return measure_plain(settings_, nullptr); }},
        {"shm", far(true, Delivery::kSignal)},
        {"tcp", far(false, Delivery::kSignal)},
        {"shm pages", far(true, Delivery::kSignal, HugePages::kNever)},
        {"tcp pages", far(false, Delivery::kSignal, HugePages::kNever)},
        {kUcx, [this, ucx] { return measure_far(settings_, ucx()); }},
        {"shm handler", far(true, Delivery::kMessages)},
        {"zram swap", [this] { return measure_swap(); }},
        {"round trip shm", [this] { return measure_round_trip(far_config(true, Delivery::kSignal)); }},
        {"round trip tcp", [this] { return measure_round_trip(far_config(false, Delivery::kSignal)); }},
        {kUcxRoundTrip, [ucx] { return measure_round_trip(ucx()); }},
        {"all near", [this] { return measure_all_near(settings_, far_config(true, Delivery::kSignal)); }},
    };
    if (settings_.configurations.empty()) return all;
    std::erase_if(all, [this](const Configuration& configuration) { return !wanted(configuration.name); });
    return all;
  }

  bool wanted(const std::string& name) const {
    return std::find(settings_.configurations.begin(), settings_.configurations.end(), name) !=
           settings_.configurations.end();
  }

  FarMemoryConfig far_config(bool shm, pager::Delivery delivery) const {
    return {shm ? server_->shm() : server_->tcp(),
            server_->token(),
            settings_.bytes,
            near_bytes(),
            delivery,
            settings_.evictors};
  }

  uint64_t near_bytes() const { return static_cast<uint64_t>(settings_.local * static_cast<double>(settings_.bytes)); }

  // The transports of a card where there is one that can serve memory, else TCP on loopback.
  ucx::Settings prepare_ucx() {
    auto installation = find_installation();
    ucx::Settings settings = {installation.ok() ? installation->ucx_helper() : "", "all"};
    auto found = installation.ok() ? ucx::survey(settings) : installation.status();
    bool serves = found.ok() && found->has_card && found->pages_on_demand;
    settings.transports = serves ? ucx::kDefaultTransports : "tcp";
    Status ready = found.ok() ? start_relay(settings) : found.status();
    if (ready.ok()) return settings;
    for (const char* name : {kUcx, kUcxRoundTrip}) skipped_[name] = ready.text();
    return {};
  }

  Status start_relay(const ucx::Settings& settings) {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    auto relay = UcxRelay::start(*directory_, settings);
    if (relay.ok()) ucx_relay_ = std::move(*relay);
    return relay.status();
  }

  void prepare_swap() {
    auto swap = settings_.zram ? KernelSwap::create(settings_.bytes, settings_.local)
                               : Status::error(ECANCELED, "left out by --no-zram");
    if (swap.ok()) swap_ = std::move(*swap);
    else skipped_["zram swap"] = swap.status().text();
  }

  Result<json> measure_swap() const { return measure_plain(settings_, swap_.get()); }

  static void add_configuration(const std::string& name, const std::vector<json>& runs, json* document);

  PagingSettings settings_;
  const SignalHold& hold_;
  Progress progress_;
  std::unique_ptr<PrivateDirectory> directory_;  // of the relay
  std::unique_ptr<UcxRelay> ucx_relay_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<KernelSwap> swap_;
  std::map<std::string, std::string> skipped_;
  std::map<std::string, std::vector<json>> collected_;
};

// `field` of every run, where it is a number.
std::vector<double> numbers(const std::vector<json>& runs, const json::json_pointer& field) {
  std::vector<double> values;
  for (const json& run : runs) {
    if (run.contains(field) && run[field].is_number()) values.push_back(run[field]);
  }
  return values;
}

json medians(const std::vector<json>& runs, const json::json_pointer& object) {
  json result = json::object();
  if (!runs.front().contains(object)) return result;
  for (const auto& [name, value] : runs.front()[object].items()) result[name] = median(numbers(runs, object / name));
  return result;
}

void PagingRun::add_configuration(const std::string& name, const std::vector<json>& runs, json* document) {
  if (name.starts_with("round trip ")) {
    (*document)["round_trip_us"][name.substr(sizeof "round trip " - 1)] = summary(numbers(runs, "/us"_json_pointer));
    return;
  }
  if (name == "all near") {
    std::vector<double> ratios;
    for (const json& run : runs) ratios.push_back(run["ratio"]);
    (*document)["all_near_ratio"] = summary(ratios);
    return;
  }
  for (size_t i = 0; i < runs.front()["cells"].size(); i++) {
    json::json_pointer at = json::json_pointer("/cells") / i;
    json cell = {{"configuration", name},
                 {"workload", runs.front()[at / "workload"]},
                 {"threads", runs.front()[at / "threads"]}};
    cell["us"] = summary(numbers(runs, at / "us"));
    cell["counters"] = medians(runs, at / "counters");
    (*document)["cells"].push_back(cell);
  }
  // Native memory has no misses: a slow access there was interrupted.
  if (name != "native") (*document)["misses"][name] = medians(runs, "/miss"_json_pointer);
}

// The number at a JSON pointer; -1 if there is none.
double number_at(const json& document, const char* place) {
  json::json_pointer at(place);
  return document.contains(at) ? document[at].get<double>() : -1;
}

double cell_us(const json& document, const std::string& configuration, const std::string& workload, unsigned threads) {
  for (const json& cell : document["cells"]) {
    if (cell["configuration"] == configuration && cell["workload"] == workload && cell["threads"] == threads)
      return cell["us"]["median"];
  }
  return -1;
}

// Streams with huge frames against pages of 4 KiB and kernel swap, and accesses that huge frames must not slow down.
void add_huge_page_goals(const json& document, std::vector<Goal>& goals) {
  struct Ratio {
    const char *slower, *faster, *workload;
    double least;
  };
  for (Ratio r : {Ratio{"shm pages", "shm", "sequential read", 3}, Ratio{"shm pages", "shm", "sequential write", 2},
                  Ratio{"zram swap", "shm", "sequential read", 15}, Ratio{"zram swap", "shm", "sequential write", 12},
                  Ratio{"shm pages", "shm", "random read", 0.97}, Ratio{"shm pages", "shm", "random write", 0.97}}) {
    double slower = cell_us(document, r.slower, r.workload, 1), faster = cell_us(document, r.faster, r.workload, 1);
    if (slower <= 0 || faster <= 0) continue;
    goals.push_back({fmt::format("{}: {} with huge pages, times as fast as {}", r.workload, r.faster, r.slower),
                     slower / faster, r.least, true, "x"});
  }
  for (auto [workload, most] : {std::pair{"sequential read", 1.3}, std::pair{"sequential write", 2.5}}) {
    double tcp = cell_us(document, "tcp", workload, 1);
    if (tcp > 0) goals.push_back({fmt::format("{}: tcp with huge pages", workload), tcp, most, false, " us"});
  }
}

}  // namespace

Result<json> measure_paging(const PagingSettings& settings) {
  SignalHold hold;
  PagingRun run(settings, hold);
  Status done = run.prepare();
  for (unsigned i = 0; done.ok() && i < settings.repetitions; i++) done = run.repeat();
  if (!done.ok()) return done;
  json document = run.document();
  document["goals"] = json::array();
  for (const Goal& goal : paging_goals(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::vector<std::string> paging_configurations() {
  return {"native",      "shm",         "tcp",       "shm pages",      "tcp pages",
          kUcx,          "shm handler", "zram swap", "round trip shm", "round trip tcp",
          kUcxRoundTrip, "all near"};
}

// A goal is left out if the document lacks its values.
std::vector<Goal> paging_goals(const json& document) {
  std::vector<Goal> goals;
  struct Speed {
    const char* workload;
    double factor;
  };
  for (Speed s : {Speed{"random read", 2}, {"random write", 2}, {"sequential read", 4}, {"sequential write", 2.5}}) {
    double swap = cell_us(document, "zram swap", s.workload, 1), far = cell_us(document, "shm", s.workload, 1);
    if (swap > 0 && far > 0) {
      goals.push_back(
          {fmt::format("{}: shm, times as fast as zram swap", s.workload), swap / far, s.factor, true, "x"});
    }
  }
  add_huge_page_goals(document, goals);
  double tcp = number_at(document, "/misses/tcp/median_us"), trip = number_at(document, "/round_trip_us/tcp/median");
  if (tcp > 0 && trip > 0) {
    double beyond = tcp - trip;
    goals.push_back({"random read miss over tcp, beyond the transport's polled round trip", beyond, 4, false, " us"});
  }
  if (double shm = number_at(document, "/misses/shm/median_us"); shm > 0) {
    double spread = number_at(document, "/misses/shm/p99_us") / shm;
    goals.push_back({"random read miss over shm, p99 against its median", spread, 5, false, "x"});
  }
  double ratio = number_at(document, "/all_near_ratio/median");
  if (ratio > 0)
    goals.push_back({"compute loop over far memory that is all near, against plain memory", ratio, 1.02, false, "x"});
  return goals;
}

}  // namespace farside::bench
