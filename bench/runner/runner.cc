#include "bench/runner/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "abi/options.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/runner/journal.h"
#include "bench/runner/options.h"
#include "bench/runner/report.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

// The figures that the repetitions of one row gave.
struct Row {
  json key;
  std::vector<json> figures;
};

std::vector<double> numbers(const std::vector<json>& runs, const json::json_pointer& at) {
  std::vector<double> all;
  for (const json& run : runs) {
    if (run.contains(at) && run[at].is_number()) all.push_back(run[at]);
  }
  return all;
}

json medians(const std::vector<json>& runs, const json::json_pointer& object) {
  json made = json::object();
  for (const auto& [name, value] : runs.back()[object].items()) made[name] = median(numbers(runs, object / name));
  return made;
}

json document_row(const Row& row) {
  json made = row.key;
  for (const auto& [name, value] : row.figures.back().items()) {
    json::json_pointer at = json::json_pointer() / name;
    if (value.is_number()) made[name] = summary(numbers(row.figures, at));
    else if (value.is_object()) made[name] = medians(row.figures, at);
    else made[name] = value;
  }
  return made;
}

// Environment variables that change how programs run over far memory. The token is not one of them.
json far_variables() {
  json variables = json::object();
  for (const OptionRow& row : option_rows()) {
    const char* value = row.scope == Scope::kInternal ? nullptr : getenv(std::string(row.variable).c_str());
    if (value) variables[std::string(row.variable)] = value;
  }
  return variables;
}

// The time for all measurements. None starts that, if it takes as long as the longest one before, ends too late.
class Budget {
 public:
  explicit Budget(double seconds) : limit_ns_(static_cast<uint64_t>(seconds * 1e9)) {}  // 0: no limit
  bool has_time() const { return limit_ns_ == 0 || last_ns_ - start_ns_ + longest_ns_ <= limit_ns_; }
  // A measurement has ended.
  void count() {
    uint64_t now = now_ns();
    longest_ns_ = std::max(longest_ns_, now - last_ns_);
    last_ns_ = now;
  }

 private:
  const uint64_t limit_ns_, start_ns_ = now_ns();
  uint64_t last_ns_ = start_ns_, longest_ns_ = 0;
};

class Run {
 public:
  Run(const Benchmark& benchmark, const Settings& settings, const Setup& setup, Journal journal)
      : benchmark_(benchmark),
        settings_(settings),
        setup_(setup),
        journal_(std::move(journal)),
        skipped_(setup.missing()) {
    for (const Suite& suite : benchmark.suites) add(suite);
  }

  Status measure() {
    auto once = std::ranges::count_if(measurements_, &Measurement::once);
    Progress progress(settings_.repetitions * (measurements_.size() - once) + once, settings_.quiet);
    for (unsigned i = 0; i < settings_.repetitions; i++) {
      for (const Measurement& m : measurements_) {
        if (m.once && i + 1 < settings_.repetitions) continue;
        if (!budget_.has_time()) {
          leave_out(m);
          continue;
        }
        progress.step(m.name);
        if (Status done = measure(m, fmt::format("{} {}", m.name, i)); !done.ok()) return done;
        budget_.count();
      }
    }
    return {};
  }

  json document() const {
    json rows = json::array();
    for (const Row& row : rows_) rows.push_back(document_row(row));
    return {{"benchmark", benchmark_.name},
            {"machine", machine_json()},
            {"settings", settings_json(benchmark_, settings_)},
            {"variables", far_variables()},
            {"skipped", skipped_},
            {"problems", problems_},
            {"rows", rows}};
  }

 private:
  void add(const Suite& suite) {
    if (!Settings::wants(settings_.suites, suite.name)) return;
    for (Measurement& m : suite.measurements(setup_)) {
      m.key["suite"] = suite.name;
      if (benchmark_.suites.size() > 1) m.name = suite.name + (m.name.empty() ? "" : ": " + m.name);
      measurements_.push_back(std::move(m));
    }
  }

  void leave_out(const Measurement& m) {
    if (!measured(m)) skipped_.try_emplace(m.name, "the time of --budget was used up");
  }

  Status measure(const Measurement& m, const std::string& run) {
    const json* known = journal_.find(run);
    Result<json> made = known ? *known : m.in_parent ? m.run() : run_in_child(setup_.hold(), m.run);
    if (made.ok() && !known) {
      if (Status kept = journal_.add(run, *made); !kept.ok()) return kept;
    }
    if (made.ok()) return use(m, *made);
    if (!m.may_fail || made.status().code() == EINTR)
      return Status::error(made.status().code(), "{}: {}", m.name, made.status().text());
    if (!measured(m)) skipped_[m.name] = made.status().text();
    else log(LogLevel::kWarning, "{}: a repetition is left out: {}", m.name, made.status().text());
    return {};
  }

  bool measured(const Measurement& m) const {
    return std::ranges::any_of(rows_, [&](const Row& row) { return has_members(row.key, m.key); });
  }

  Status use(const Measurement& m, const json& made) {
    Status used = m.use ? m.use(made) : Status();
    if (!used.ok()) problems_.push_back(fmt::format("{}: {}", m.name, used.text()));
    skipped_.erase(m.name);
    if (!made.is_array()) add_row(m.key, made);
    else
      for (const json& row : made) add_row(m, row);
    return {};
  }

  // A row without figures has the reason instead.
  void add_row(const Measurement& m, const json& row) {
    if (row.contains("figures")) return add_row(merged(m.key, row["key"]), row["figures"]);
    std::string what = m.name;
    for (const auto& [member, value] : row["key"].items()) what += ", " + value.get<std::string>();
    skipped_[what] = row["skipped"];
  }

  void add_row(const json& key, const json& figures) {
    auto known = std::ranges::find(rows_, key, &Row::key);
    if (known == rows_.end()) rows_.push_back({key, {figures}});
    else known->figures.push_back(figures);
  }

  const Benchmark& benchmark_;
  const Settings& settings_;
  const Setup& setup_;
  Journal journal_;
  Budget budget_{settings_.budget};
  std::map<std::string, std::string> skipped_;
  std::vector<std::string> problems_;
  std::vector<Measurement> measurements_;
  std::vector<Row> rows_;
};

}  // namespace

std::string journal_path(const Benchmark& benchmark, const Settings& settings) {
  return settings.json.empty() ? "" : fmt::format("{}.{}.part", settings.json, benchmark.name);
}

Result<json> run_benchmark(const Benchmark& benchmark, const Settings& settings) {
  auto setup = Setup::create(settings, benchmark.needs);
  if (!setup.ok()) return setup.status();
  auto journal = Journal::open(journal_path(benchmark, settings), {{"benchmark", benchmark.name},
                                                                   {"commit", build_commit()},
                                                                   {"settings", settings_json(benchmark, settings)},
                                                                   {"variables", far_variables()}});
  if (!journal.ok()) return journal.status();
  Run run(benchmark, settings, **setup, std::move(*journal));
  if (Status done = run.measure(); !done.ok()) return done;
  json document = run.document();
  document["goals"] = json::array();
  for (const Goal& goal : goals_of(benchmark, document)) document["goals"].push_back(goal.to_json());
  return document;
}

}  // namespace farside::bench
