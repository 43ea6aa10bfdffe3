#include "tools/plan/predict.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "launch/run_captured.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"
#include "tools/plan/points.h"

namespace farside::plan {
namespace {

using nlohmann::json;

constexpr unsigned kNativeRuns = 3;
// Time of an access that hits in the n-th cache, and of one to memory: typical of servers.
constexpr double kCacheNs[] = {1.5, 5, 20};
constexpr double kMemoryNs = 100;

// The fastest of equal runs: other work on the machine only makes them slower.
double fastest(const std::vector<double>& seconds) { return *std::ranges::min_element(seconds); }

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Standard deviation of single values, not of their mean: the predicted run is one more of them.
double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  double squares = 0, middle = mean(values);
  for (double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// Mean access time in ns with all memory near, with each cache modelled as an LRU cache of its size.
double local_amat_ns(const Observation& seen, const std::vector<double>& caches) {
  double all = seen.accesses(), ns = all * kCacheNs[0];
  size_t levels = std::min(caches.size(), std::size(kCacheNs));
  for (size_t i = 0; i < levels; i++) {
    double beyond = i + 1 < levels ? kCacheNs[i + 1] : kMemoryNs;
    ns += (seen.misses(kLineBits, caches[i]).value + seen.first_touches(kLineBits)) * (beyond - kCacheNs[i]);
  }
  return all > 0 ? ns / all : 0;
}

json curve(const Observation& seen, unsigned bits) {
  json points = json::array();
  double all = std::max(1.0, seen.far_accesses());
  for (unsigned share : predicted_shares()) {
    Estimate misses = seen.misses(bits, share / 100.0 * seen.heap_bytes());
    double reach = kInterval95 * misses.error;
    points.push_back({{"share", share},
                      {"misses", misses.value},
                      {"ratio", misses.value / all},
                      {"low", std::max(0.0, misses.value - reach) / all},
                      {"high", (misses.value + reach) / all}});
  }
  return {{"block", uint64_t{1} << bits}, {"rate", seen.rate(bits)}, {"points", points}};
}

// The events of Farside's near memory at each share.
json near_events(const Observation& seen) {
  json all = json::array();
  std::vector<unsigned> shares = predicted_shares();
  for (size_t i = 0; i < shares.size(); i++) {
    json events = {{"share", shares[i]}};
    for (size_t e = 0; e < kNearEvents; e++) events[kNearEventNames[e]] = seen.near().events(i)[e];
    all.push_back(events);
  }
  return all;
}

json named(const FarsidePrice& price) {
  json prices = {{"stream_fetch_at_work", price.stream_fetch_at_work}};
  for (size_t e = 0; e < kNearEvents; e++) prices[kNearEventNames[e]] = price.us[e];
  return prices;
}

// Converts the time that a system adds at each share into access times and slowdowns.
class Outlook {
 public:
  Outlook(const Observed& observed, const Native& native, double amat_ns, double slowdown)
      : observed_(observed), native_(native), amat_ns_(amat_ns), slowdown_(slowdown) {}

  json system(const std::string& name, const std::string& source, double us, const std::vector<Estimate>& added) const {
    json points = json::array();
    std::vector<unsigned> shares = predicted_shares();
    for (size_t i = 0; i < shares.size(); i++) points.push_back(point(shares[i], added[i]));
    json made = {{"name", name}, {"source", source}, {"us", us}, {"points", points}};
    if (!observed_.cut_off) {
      made["keep"] = {{"share", smallest_share(points, "slowdown")},
                      {"low", smallest_share(points, "low")},
                      {"high", smallest_share(points, "high")}};
    }
    return made;
  }

 private:
  json point(unsigned share, const Estimate& us) const {
    double accesses = std::max(1.0, observed_.observation.accesses());
    json made = {{"share", share}, {"amat_ns", amat_ns_ + us.value * 1000 / accesses}};
    if (observed_.cut_off) return made;
    double native = fastest(native_.seconds), per_us = 1e-6 / native_.processors / native;
    double relative = deviation(native_.seconds) / native;
    double reach = kInterval95 * std::hypot(us.error * per_us, us.value * per_us * relative);
    double slowdown = 1 + us.value * per_us;
    made["slowdown"] = slowdown;
    made["low"] = slowdown - reach;
    made["high"] = slowdown + reach;
    return made;
  }

  // Null: none.
  json smallest_share(const json& points, const char* member) const {
    std::optional<double> share = smallest_with(points, "share", member, 1 + slowdown_);
    return share ? json(*share) : json();
  }

  const Observed& observed_;
  const Native& native_;
  double amat_ns_, slowdown_;
};

// The program's working time per page of its streams, if it is equal for all pages.
double work_us(const NearModel& near, size_t share, const Native& native) {
  double pages = near.events(share)[kStreamFetch];
  return fastest(native.seconds) * native.processors * 1e6 / std::max(1.0, pages);
}

// The median over the repetitions of the prices; their spread is added to the error.
std::vector<Estimate> added_by(const Observation& seen, const FarsidePrices& prices, const Native& native) {
  std::vector<Estimate> added;
  for (size_t share = 0; share < predicted_shares().size(); share++) {
    std::vector<double> us;
    double error = 0, work = work_us(seen.near(), share, native);
    for (const FarsidePrice& price : prices.repetitions) {
      Estimate cost = seen.near().cost(share, price.at_work(work));
      us.push_back(cost.value);
      error = std::max(error, cost.error);
    }
    added.push_back({median(us), std::hypot(error, deviation(us))});
  }
  return added;
}

std::vector<Estimate> added_by(const Observation& seen, const PublishedPrice& price) {
  std::vector<Estimate> added;
  for (unsigned share : predicted_shares()) {
    Estimate misses = seen.misses(price.block_bits, share / 100.0 * seen.heap_bytes());
    added.push_back({misses.value * price.us, misses.error * price.us});
  }
  return added;
}

Result<Native> run_natively(const std::vector<std::string>& words, const SignalHold& hold, bool quiet) {
  Native native;
  double cpu = 0;
  Progress progress(kNativeRuns, quiet);
  for (unsigned i = 0; i < kNativeRuns; i++) {
    progress.step("native");
    Result<CapturedRun> run = run_captured(words, hold, {.keep_output = false});
    if (!run.ok()) return run.status();
    if (!run->succeeded()) return Status::error(ECHILD, "the program fails natively: {}", run->outcome());
    native.seconds.push_back(run->seconds);
    cpu += run->cpu_seconds;
  }
  double wall = std::accumulate(native.seconds.begin(), native.seconds.end(), 0.0);
  native.processors = std::max(1.0, cpu / wall);
  return native;
}

}  // namespace

std::vector<double> cache_sizes() {
  std::vector<double> sizes;
  for (int i = 0;; i++) {
    std::string place = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i), type = read_line(place + "type");
    if (type.empty()) break;
    Result<uint64_t> size = parse_size(read_line(place + "size"));
    if (type != "Instruction" && size.ok()) sizes.push_back(static_cast<double>(*size));
  }
  std::ranges::sort(sizes);
  return sizes;
}

json prediction_of(const Observed& observed, const Native& native, const std::vector<FarsidePrices>& prices,
                   const std::vector<double>& caches, double slowdown) {
  const Observation& seen = observed.observation;
  double amat_ns = local_amat_ns(seen, caches);
  json made = {{"native_s", summary(native.seconds)}, {"processors", native.processors}, {"local_amat_ns", amat_ns},
               {"near_events", near_events(seen)},    {"curves", json::array()},         {"systems", json::array()}};
  made["observed"] = {{"seconds", observed.seconds},
                      {"cut_off", observed.cut_off},
                      {"accesses", seen.accesses()},
                      {"far_accesses", seen.far_accesses()},
                      {"instructions", observed.instructions},
                      {"heap_bytes", seen.heap_bytes()},
                      {"slowdown", observed.seconds / fastest(native.seconds)}};
  for (unsigned bits : kBlockBits) made["curves"].push_back(curve(seen, bits));
  Outlook outlook(observed, native, amat_ns, slowdown);
  for (const FarsidePrices& price : prices) {
    std::vector<double> fetch;
    for (const FarsidePrice& one : price.repetitions) fetch.push_back(one.us[kFetch]);
    made["systems"].push_back(
        outlook.system("Farside, " + price.name, "measured here", median(fetch), added_by(seen, price, native)));
    for (const FarsidePrice& us : price.repetitions) made["systems"].back()["prices_us"].push_back(named(us));
  }
  for (const PublishedPrice& price : published_prices()) {
    made["systems"].push_back(outlook.system(price.name, price.source, price.us, added_by(seen, price)));
  }
  return made;
}

Result<json> predict_plan(const PredictSettings& settings, const cli::RunSettings& run, const std::string& path,
                          const std::vector<std::string>& program) {
  Result<std::string> valgrind = find_valgrind();
  if (!valgrind.ok()) return valgrind.status();
  SignalHold hold;
  std::vector<std::string> words = program;
  words[0] = path;
  bool quiet = run.options.quiet;
  Result<Native> native = run_natively(words, hold, quiet);
  if (!native.ok()) return native.status();
  Observed observed;
  Status seen = observe(words, hold, settings.seconds, quiet, &observed);
  if (!seen.ok()) return seen;
  if (observed.observation.far_accesses() == 0) {
    return Status::error(ENODATA,
                         "{} accessed no memory that may be far; give the program itself, not a script that starts it",
                         program[0]);
  }
  auto prices =
      measure_prices(run, {.latencies = settings.latencies, .threads = busy_threads(native->processors)}, hold);
  if (!prices.ok()) return prices.status();
  json made = prediction_of(observed, *native, *prices, cache_sizes(), settings.slowdown);
  made["command"] = "plan";
  made["program"] = program;
  made["machine"] = machine_json();
  made["settings"] = {
      {"seconds", settings.seconds}, {"slowdown", settings.slowdown}, {"latencies_us", settings.latencies}};
  return made;
}

void add_check(const json& measured, json* prediction) {
  json checked = json::array();
  double native = measured["native_s"]["min"];
  const json& points = (*prediction)["systems"][0]["points"];
  bool predicted_times = !points.empty() && points[0].contains("slowdown");  // not of a run that was cut off
  for (const json& point : predicted_times ? measured["points"] : json::array()) {
    double share = point["share"], slowdown = point["seconds"]["min"].get<double>() / native;
    double predicted = value_at(points, "share", share, "slowdown");
    predicted = 1 + (predicted - 1) * (*prediction)["native_s"]["min"].get<double>() / native;
    checked.push_back(
        {{"share", share}, {"measured", slowdown}, {"predicted", predicted}, {"error", predicted / slowdown - 1}});
  }
  (*prediction)["checked"] = checked;
  (*prediction)["measured"] = measured;
}

}  // namespace farside::plan
