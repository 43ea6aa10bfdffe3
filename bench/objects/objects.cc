// Runs the suites of `farside bench objects` and collects their rows in one document.
#include "bench/objects/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "bench/objects/suite.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using namespace objects_bench;
using nlohmann::json;

// In the order of the text output.
constexpr const Suite* kSuites[] = {&kNear,       &kMisses, &kFibers,   &kPaths,   &kMap,
                                    &kFreeMemory, &kPauses, &kEviction, &kNearApps};

bool is_wanted(const ObjectsSettings& s, const Suite& suite) {
  return s.suites.empty() || std::find(s.suites.begin(), s.suites.end(), suite.name) != s.suites.end();
}

bool has_suite(const json& document, const Suite& suite) { return find_row(document, {{"suite", suite.name}}); }

// Calls add((suite.*make)(document)) for every suite that was measured.
template <typename Made, typename Add>
void for_each_suite(const json& document, Made Suite::*make, Add add) {
  for (const Suite* suite : kSuites) {
    if (has_suite(document, *suite)) add((suite->*make)(document));
  }
}

// The rows that one measurement returned in each repetition, in the same order each time.
class Runs {
 public:
  void add(const json& rows) { made_.push_back(rows); }
  std::vector<json> rows() const {
    std::vector<json> rows;
    for (size_t i = 0; !made_.empty() && i < made_.front().size(); i++) rows.push_back(row(i));
    return rows;
  }

 private:
  json row(size_t i) const {
    json row = made_.front()[i]["key"];
    for (const auto& [name, value] : made_.back()[i]["figures"].items())
      row[name] = value.is_number() ? summary(numbers(i, name)) : value;
    return row;
  }
  std::vector<double> numbers(size_t i, const std::string& name) const {
    std::vector<double> values;
    for (const json& made : made_) values.push_back(made[i]["figures"][name]);
    return values;
  }
  std::vector<json> made_;
};

class Benchmark {
 public:
  explicit Benchmark(const ObjectsSettings& settings) : settings_(settings) {}

  Status run() {
    auto server = ServerProcess::start(hold_, 8 * settings_.bytes + 2 * kGiB);
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    prepare_swap();
    for (const Suite* suite : kSuites) {
      if (!is_wanted(settings_, *suite)) continue;
      for (Measurement& m : suite->measurements({settings_, *server_, swap_.get()})) measurements_.push_back(m);
    }
    runs_.resize(measurements_.size());
    Progress progress(measurements_.size() * settings_.repetitions, settings_.quiet);
    Status done;
    for (unsigned i = 0; done.ok() && i < settings_.repetitions; i++) done = repeat(progress);
    return done;
  }

  json document() const {
    json made = {{"machine", machine_json()}, {"skipped", skipped_}, {"rows", json::array()}};
    made["settings"] = {{"bytes", settings_.bytes},
                        {"local", settings_.local},
                        {"accesses", settings_.accesses},
                        {"repetitions", settings_.repetitions}};
    for (const Runs& runs : runs_) {
      for (const json& row : runs.rows()) made["rows"].push_back(row);
    }
    return made;
  }

 private:
  void prepare_swap() {
    auto swap = settings_.zram ? KernelSwap::create(settings_.bytes, settings_.local)
                               : Status::error(ECANCELED, "left out by --no-zram");
    if (swap.ok()) swap_ = std::move(*swap);
    else skipped_["kernel swap"] = swap.status().text();
  }

  // Every measurement once. The measurements alternate, so that drift of the machine affects all of them alike.
  Status repeat(Progress& progress) {
    for (size_t i = 0; i < measurements_.size(); i++) {
      const Measurement& m = measurements_[i];
      progress.step(m.name);
      auto made = run_in_child(hold_, m.run);
      if (made.ok()) runs_[i].add(*made);
      else if (m.may_fail && made.status().code() != EINTR)
        log(LogLevel::kWarning, "{}: a repetition is left out: {}", m.name, made.status().text());
      else return Status::error(made.status().code(), "{}: {}", m.name, made.status().text());
    }
    return {};
  }

  SignalHold hold_;
  const ObjectsSettings& settings_;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<KernelSwap> swap_;
  json skipped_ = json::object();
  std::vector<Measurement> measurements_;
  std::vector<Runs> runs_;
};

std::vector<Goal> goals_of(const json& document) {
  std::vector<Goal> goals;
  for_each_suite(document, &Suite::goals,
                 [&](const std::vector<Goal>& more) { goals.insert(goals.end(), more.begin(), more.end()); });
  return goals;
}

}  // namespace

std::vector<std::string> objects_suites() {
  std::vector<std::string> names;
  for (const Suite* suite : kSuites) names.push_back(suite->name);
  return names;
}

Result<json> measure_objects(const ObjectsSettings& settings) {
  Benchmark benchmark(settings);
  Status done = benchmark.run();
  if (!done.ok()) return done;
  json document = benchmark.document();
  document["goals"] = json::array();
  for (const Goal& goal : goals_of(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::string objects_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n\n";
  for_each_suite(document, &Suite::text, [&](const std::string& more) { text += more + "\n"; });
  for (const auto& [what, why] : document["skipped"].items())
    text += fmt::format("{}: not run: {}\n", what, why.get<std::string>());
  for (const Goal& goal : goals_of(document)) text += goal.text() + "\n";
  return text;
}

std::vector<LineChart> objects_charts(const json& document) {
  std::vector<LineChart> charts;
  for_each_suite(document, &Suite::charts,
                 [&](const std::vector<LineChart>& more) { charts.insert(charts.end(), more.begin(), more.end()); });
  return charts;
}

}  // namespace farside::bench
