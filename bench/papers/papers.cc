// `farside bench papers`: runs the commands of the chosen figures, and puts the papers' ratios beside ours.
#include "bench/papers/papers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "bench/runner/own_runs.h"
#include "bench/runner/report.h"
#include "launch/run_captured.h"

namespace farside::bench {
namespace papers {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr double kLimit = 1800;  // seconds of a command

// ---- Results of commands as rows ----

json as_figure(const json& value) { return value.is_number() ? json{{"median", value}} : value; }

// The share of a histogram's first `count` entries, in percent.
json share_of_first(const json& histogram, size_t count) {
  double first = 0, all = 0;
  for (size_t i = 0; i < histogram.size(); i++) {
    all += histogram[i].get<double>();
    if (i < count) first += histogram[i].get<double>();
  }
  return all == 0 ? json() : json(100 * first / all);
}

// What farside track's counts mean for Kona's figures 2, 3 and 10.
json shares_of_track(const json& document) {
  const json &total = document["total"], &cost = document["overhead"];
  double faults_s = cost["write_faults"].get<double>() * cost["write_fault_ns"].get<double>() / 1e9;
  return {{"pages_to_8_lines", share_of_first(total["lines_per_page"], 8)},
          {"runs_to_4_lines", share_of_first(total["run_lengths"], 4)},
          {"in_write_faults", 100 * faults_s / cost["elapsed_seconds"].get<double>()}};
}

// Mean access times that farside plan predicts, one row for each system and share.
json rows_of_prediction(const json& document) {
  json rows = json::array();
  for (const json& system : document["systems"]) {
    for (const json& point : system["points"])
      rows.push_back({{"system", system["name"]}, {"near", point["share"]}, {"amat_ns", as_figure(point["amat_ns"])}});
  }
  return rows;
}

// ---- Commands ----

std::string paper_of(const Figure& figure) {
  std::string id = figure.id;
  return id.substr(0, id.find('-'));
}

class Commands {
 public:
  explicit Commands(const Setup& setup) : setup_(setup), settings_(setup.settings()) {}

  Status prepare() {
    Result<OwnRuns> prepared = OwnRuns::prepare(setup_);
    if (prepared.ok()) own_ = std::move(*prepared);
    return prepared.status();
  }

  // The rows of all ways of a figure. `turn`: how often it was run before. Figures share the runs of equal commands.
  Result<json> rows(const Figure& figure, size_t turn) {
    json all = json::array();
    for (const Way& way : figure.ways) {
      for (const auto& [run, command] : expanded(way.command)) {
        Result<json> rows = result_of(command, turn);
        if (!rows.ok()) return rows;
        for (json row : *rows) {
          row["way"] = way.name;
          if (!run.empty()) row["run"] = run;
          all.push_back(std::move(row));
        }
      }
    }
    return all;
  }

 private:
  Result<json> result_of(const std::string& command, size_t turn) {
    std::vector<json>& results = results_[command];
    while (results.size() <= turn) {
      Result<json> made = run(command);
      if (!made.ok()) return made;
      results.push_back(std::move(*made));
    }
    return results[turn];
  }

  Result<json> run(const std::string& command) {
    std::string out = own_.directory->file("out");
    std::error_code ignored;
    std::filesystem::remove_all(out, ignored);
    std::filesystem::create_directory(out, ignored);
    Result<CapturedRun> run = run_captured(completed(words_of(command), out), setup_.hold(), {.seconds = kLimit});
    if (!run.ok()) return run.status();
    if (!run->succeeded()) return Status::error(EIO, "{}: {}", command, run->outcome());
    std::string text = run->output;
    for (const auto& file : std::filesystem::directory_iterator(out)) {
      if (file.path().extension() == ".json") text = read_file(file.path());
    }
    json document = json::parse(text, nullptr, false);
    if (document.is_object()) return rows_of(document);
    return Status::error(EIO, "{}: no result, but {}", command, text.substr(0, 100));
  }

  // What can be executed.
  Words completed(Words words, const std::string& out) const {
    if (words[0] == "bench") {
      words.insert(words.end(), {"--repeat", "1", "--quiet", "--json", out + "/result.json"});
      if (settings_.quick) words.emplace_back("--quick");
      if (settings_.quick && words[1] == "objects") words.insert(words.end(), {"--accesses", "2000"});  // many times
    }
    if (!words[0].starts_with("apps/")) words.insert(words.begin(), own_.farside);
    for (std::string& word : words) {
      if (word == "SIZE") word = settings_.size;
      if (word == "TCP") word = setup_.server().tcp();
      if (word.starts_with("apps/")) word.replace(0, 4, settings_.apps_dir);
      for (size_t at; (at = word.find("OUT")) != word.npos;) word.replace(at, 3, out);
    }
    return words;
  }

  const Setup& setup_;
  const Settings& settings_;
  OwnRuns own_;
  std::map<std::string, std::vector<json>> results_;
};

// ---- Measurements ----

json key_of(const Figure& figure, const char* part) {
  return {{"paper", paper_of(figure)}, {"figure", figure.id}, {"part", part}};
}

// What is said of a figure, without a measurement.
json description(const Figure& figure) {
  json ways = json::array();
  for (const Way& way : figure.ways) ways.push_back(way.command);
  return {{"measured", figure.measured},
          {"stated", figure.stated},
          {"commands", ways},
          {"differs", figure.differs},
          {"reason", figure.reason}};
}

// Rows of a ratio: ours, and the paper's where it has a number. Those with both are drawn.
void add_ratio(const Goal& goal, json* rows) {
  bool has_both = !std::isnan(goal.limit);
  auto add = [&](const char* of, double value) {
    json key = {{"ratio", goal.name}, {"label", goal.name.substr(0, goal.name.find(':'))}, {"of", of}};
    key.update({{"unit", goal.unit}, {"compared", has_both}});
    rows->push_back(make_row(key, {{"value", value}}));
  };
  if (has_both) add("paper", goal.limit);
  add("Farside", goal.measured);
}

Result<json> measure(const Figure& figure, Commands& commands, size_t turn) {
  Result<json> results = commands.rows(figure, turn);
  if (!results.ok()) return results;
  std::vector<Goal> goals;
  for (const Target& ratio : figure.ratios) add_goals(ratio, *results, &goals);
  if (goals.empty()) return Status::error(EIO, "{}: the results lack what its ratios need", figure.id);
  json rows = json::array();
  for (const Goal& goal : goals) add_ratio(goal, &rows);
  return rows;
}

Measurement measurement_of(const Figure& figure, const std::shared_ptr<Commands>& commands) {
  auto turn = std::make_shared<size_t>(0);
  return {.key = key_of(figure, "ratios"),
          .name = figure.id,
          .run = [&figure, commands, turn] { return measure(figure, *commands, (*turn)++); },
          .may_fail = true,
          .in_parent = true};
}

std::vector<Measurement> measurements(const Setup& setup) {
  std::vector<Measurement> all;
  auto commands = std::make_shared<Commands>(setup);
  Status prepared = commands->prepare();
  if (!prepared.ok())
    return {{.key = json::object(), .name = "commands", .run = [prepared] { return prepared; }, .in_parent = true}};
  for (const Figure& figure : figures()) {
    if (!Settings::wants(setup.settings().figures, figure.id)) continue;
    all.push_back({.key = key_of(figure, "description"),
                   .name = fmt::format("{}, description", figure.id),
                   .run = [&figure] { return Result<json>(description(figure)); },
                   .in_parent = true});
  }
  for (const Figure& figure : figures()) {
    if (Settings::wants(setup.settings().figures, figure.id) && !figure.ways.empty())
      all.push_back(measurement_of(figure, commands));
  }
  return all;
}

std::vector<Curves> charts() {
  struct Files {
    const char *paper, *times, *percent;
  };
  constexpr Files kFiles[] = {{"aifm", "_aifm", "_aifm_percent"},
                              {"eden", "_eden", "_eden_percent"},
                              {"mage", "_mage", "_mage_percent"},
                              {"atlas", "_atlas", "_atlas_percent"},
                              {"kona", "_kona", "_kona_percent"}};
  std::vector<Curves> all;
  for (const auto& [paper, times, percent] : kFiles) {
    for (const auto& [unit, title, file] : {std::tuple{"x", "times", times}, std::tuple{"%", "percent", percent}})
      all.push_back(chart("The paper's ratios and ours", "", title, "label", {"value"}, {"of"})
                        .of({{"paper", paper}, {"unit", unit}, {"compared", true}})
                        .to(file));
  }
  return all;
}

}  // namespace

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all = [] {
    std::vector<Figure> made;
    for (auto* paper : {aifm, eden, mage, atlas, kona}) std::ranges::move(paper(), std::back_inserter(made));
    return made;
  }();
  return all;
}

std::vector<std::pair<std::string, std::string>> expanded(const std::string& command) {
  size_t open = command.find('{'), close = command.find('}');
  if (open == command.npos) return {{"", command}};
  std::vector<std::pair<std::string, std::string>> all;
  for (size_t at = open + 1; at <= close;) {
    size_t end = std::min(command.find(',', at), close);
    std::string choice = command.substr(at, end - at);
    all.emplace_back(choice, command.substr(0, open) + choice + command.substr(close + 1));
    at = end + 1;
  }
  return all;
}

std::vector<std::string> words_of(const std::string& command) {
  Words words(1);
  bool quoted = false;
  for (char c : command) {
    if (c == '\'') quoted = !quoted;
    else if (c == ' ' && !quoted) words.emplace_back();
    else words.back() += c;
  }
  return words;
}

// Rows of `farside bench` are such rows. Of others, which are one row, words and arrays are left out: they would be
// members that identify it.
json rows_of(const json& document) {
  if (document.contains("rows")) return document["rows"];
  if (document.contains("systems")) return rows_of_prediction(document);
  json row = document.contains("overhead") ? shares_of_track(document) : json::object();
  for (json& value : row) value = as_figure(value);
  for (const auto& [name, value] : document.items()) {
    if (value.is_number() || value.is_object()) row[name] = as_figure(value);
  }
  return json::array({row});
}

}  // namespace papers

Suite papers_suite() {
  return {.name = "papers",
          .measurements = papers::measurements,
          .tables = {table("as the paper and here", {"ratio", "unit"}, {col("", "value", 2)})
                         .by("of")
                         .with("A paper's number is of its own machines. docs/papers.md has what differs.")},
          .charts = papers::charts()};
}

std::vector<std::string> figure_names() {
  std::vector<std::string> names;
  for (const papers::Figure& figure : papers::figures()) names.emplace_back(figure.id);
  return names;
}

}  // namespace farside::bench
