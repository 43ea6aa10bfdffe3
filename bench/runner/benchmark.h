// A benchmark as data: its options, the measurements of its suites (configuration x workload x share), and the tables,
// goals and charts that are made from the rows of its results. runner.h executes it, report.h shows it.
//
// A measurement returns figures, or several rows of them. A row of the results has the members that identify it, such
// as "transport" and "workload", and its figures: {"median", "min", "max", "runs"} of numbers over all repetitions; the
// medians of objects of counters; the last repetition's value of anything else.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/runner/setup.h"

namespace farside::bench {

struct Measurement {
  nlohmann::json key;  // the members that its rows have in common
  std::string name;    // shown while it runs
  std::function<Result<nlohmann::json>()> run;
  bool may_fail = false;   // a failed repetition is left out: the kernel may kill a process that swaps too slowly
  bool in_parent = false;  // it starts processes itself; all others run in a child process
  bool once = false;       // only in the last repetition: it computes, and gives the same each time
  // Called in the parent with each result, also with one of an earlier run that is continued: for what later
  // measurements depend on. An error is a problem of the benchmark (Run::problems), which goes on.
  std::function<Status(const nlohmann::json& result)> use = nullptr;
};

// A row, where a measurement returns several: an array of them. {"key", "skipped": reason} instead where a row could
// not be measured.
inline nlohmann::json make_row(nlohmann::json key, nlohmann::json figures) {
  return {{"key", std::move(key)}, {"figures", std::move(figures)}};
}

// ---- Measurements from tables ----

// A member of the rows' keys, and its values: words, numbers, or structures with a name. The values outlive the run.
template <typename Values>
struct Axis {
  const char* member;
  const Values& values;
};
template <typename Values>
Axis(const char*, const Values&) -> Axis<Values>;

inline std::string name_of(const char* word) { return word; }
inline std::string name_of(unsigned number) { return std::to_string(number); }
inline std::string name_of(const auto& value) { return value.name; }
inline nlohmann::json value_of(unsigned number) { return number; }
inline nlohmann::json value_of(const auto& value) { return name_of(value); }

template <typename Run>
void add_measurements(std::vector<Measurement>* all, const Measurement& so_far, Run run) {
  all->push_back(so_far);
  all->back().run = run;
}

template <typename Run, typename First, typename... Rest>
void add_measurements(std::vector<Measurement>* all, const Measurement& so_far, Run run, Axis<First> first,
                      Axis<Rest>... rest) {
  for (const auto& value : first.values) {
    Measurement next = so_far;
    next.key[first.member] = value_of(value);
    next.name += (next.name.empty() ? "" : ", ") + name_of(value);
    add_measurements(all, next, std::bind_front(run, std::cref(value)), rest...);
  }
}

// run(setup, value, ...) for each combination of the axes' values; the last axis changes fastest.
template <typename Run, typename... Values>
std::vector<Measurement> measure_each(const Setup& setup, Run run, Axis<Values>... axes) {
  std::vector<Measurement> all;
  add_measurements(&all, {}, std::bind_front(run, std::cref(setup)), axes...);
  return all;
}

// The measurements of a suite that has no others.
using Measure = std::function<std::vector<Measurement>(const Setup& setup)>;
template <typename Run, typename... Values>
Measure each(Run run, Axis<Values>... axes) {
  return [=](const Setup& setup) { return measure_each(setup, run, axes...); };
}

// ---- What is shown ----
// A figure is a member of a row, or, as in "counters/faults", a member of one. `only` are rows with these members; a
// list is any of its values.

// A figure that is a word is shown as it is.
struct Column {
  const char *head, *figure;
  int digits;
  double unit;      // the figure is divided by it
  const char* per;  // and by this figure of the same row
};
inline Column col(const char* head, const char* figure, int digits = 1, double unit = 1, const char* per = nullptr) {
  return {head, figure, digits, unit, per};
}

struct Table {
  const char* head;
  std::vector<const char*> rows;  // the members whose values make a row of the table
  std::vector<Column> columns;
  const char* across = nullptr;  // a member; the columns repeat for each of its values
  const char* beside = nullptr;  // one of its values: adds the quotients of its first figure and the others'
  nlohmann::json only = {};
  const char* note = "";  // a line below

  Table& by(const char* member, const char* compared = nullptr) { return across = member, beside = compared, *this; }
  Table& of(nlohmann::json rows_only) { return only = std::move(rows_only), *this; }
  Table& with(const char* line) { return note = line, *this; }
};
inline Table table(const char* head, std::vector<const char*> rows, std::vector<Column> columns) {
  return {.head = head, .rows = std::move(rows), .columns = std::move(columns)};
}

struct Limit {
  double limit;
  bool at_least;
  const char* unit;
};
inline Limit at_least(double limit, const char* unit = "x") { return {limit, true, unit}; }
inline Limit at_most(double limit, const char* unit = "x") { return {limit, false, unit}; }

// A limit that was set before the measurement, for each of some rows.
struct Target {
  std::string text;  // "{transport}" stands for the value of a member
  const char* figure;
  Limit limit;
  nlohmann::json only;
  const char* per = nullptr;    // the figure is divided by this one,
  nlohmann::json beside = {};   // of the row that differs in these members; the largest of several
  const char* worst = nullptr;  // a member: one target for the worst of its values
  double scale = 1;             // the result is multiplied by it

  Target& over(const char* divisor, nlohmann::json other = {}) {
    return per = divisor, beside = std::move(other), *this;
  }
  Target& at_worst(const char* member) { return worst = member, *this; }
  Target& times(double factor) { return scale = factor, *this; }
};
inline Target goal(std::string text, const char* figure, Limit limit, nlohmann::json only = {}) {
  return {.text = std::move(text), .figure = figure, .limit = limit, .only = std::move(only)};
}

// Lines of `figure` by the member `x`, in one panel for each value of `panels`; bars where the values of x are words.
// Without x the figure is an array of points. Points beyond y_max are drawn there.
struct Curves {
  const char *title, *x_label, *y_label;
  const char* x;
  std::vector<const char*> figures;
  std::vector<const char*> series;  // the members that name a line
  std::vector<const char*> panels = {};
  double unit = 1;
  nlohmann::json only = {};
  double x_max = 0, y_max = 0;  // 0: fits the points
  const char* file = "";        // "_NAME": in a file of its own, BENCHMARK_NAME.svg

  Curves& by(std::vector<const char*> members) { return panels = std::move(members), *this; }
  Curves& in(double divisor) { return unit = divisor, *this; }
  Curves& of(nlohmann::json rows_only) { return only = std::move(rows_only), *this; }
  Curves& up_to(double most_x, double most_y = 0) { return x_max = most_x, y_max = most_y, *this; }
  Curves& to(const char* name) { return file = name, *this; }
};
inline Curves chart(const char* title, const char* x_label, const char* y_label, const char* x,
                    std::vector<const char*> figures, std::vector<const char*> series) {
  return {title, x_label, y_label, x, std::move(figures), std::move(series)};
}

// ---- Benchmarks ----

struct Suite {
  const char* name;
  Measure measurements;
  std::vector<Table> tables;
  std::vector<Target> targets = {};
  std::vector<Curves> charts = {};
  // Further text from the rows, which no table can show.
  std::string (*more_text)(const nlohmann::json& rows) = [](const nlohmann::json&) { return std::string(); };
};

struct Benchmark {
  const char *name, *help;
  const char* about = "";                   // of the help: what is measured
  std::vector<const char*> examples = {};   // of options
  const char* page = "docs/benchmarks.md";  // what its figures mean
  const char* options;                      // their names (options.cc), besides those of all benchmarks
  Settings defaults = {};
  Settings quick = {};                                           // the defaults with --quick: some minutes in all
  unsigned needs = 0;                                            // of Need
  std::map<std::string, std::vector<std::string>> choices = {};  // the values of options that list some
  std::vector<Suite> suites;
};

// All benchmarks, in the order of the list.
const std::vector<Benchmark>& benchmarks();

}  // namespace farside::bench
