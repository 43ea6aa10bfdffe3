#include "bench/runner/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/chart.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Cells = std::vector<std::string>;

json rows_with(const json& rows, const json& members) {
  json found = json::array();
  std::ranges::copy_if(rows, std::back_inserter(found), [&](const json& row) { return has_members(row, members); });
  return found;
}

std::string word(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// The different values of the members in the rows, in order of appearance.
std::vector<json> keys_of(const json& rows, const std::vector<const char*>& members) {
  std::vector<json> keys;
  for (const json& row : rows) {
    json key = json::object();
    for (const char* member : members) {
      if (row.contains(member)) key[member] = row[member];
    }
    if (key.size() == members.size() && !std::ranges::count(keys, key)) keys.push_back(key);
  }
  return keys;
}

// A number is shown with its member: "4 evictors".
std::string joined(const json& key, const std::vector<const char*>& members) {
  std::vector<std::string> words;
  for (const char* member : members)
    words.push_back(word(key[member]) + (key[member].is_number() ? fmt::format(" {}", member) : ""));
  return fmt::format("{}", fmt::join(words, ", "));
}

// A figure as the row has it; null if it lacks it.
json value_of(const json& row, const std::string& figure) {
  json::json_pointer at("/" + figure);
  return row.contains(at) ? row[at] : json();
}

// That of the first row with the members of `key` that has it.
json value_in(const json& rows, const json& key, const char* figure) {
  for (const json& row : rows) {
    if (json found = value_of(row, figure); !found.is_null() && has_members(row, key)) return found;
  }
  return nullptr;
}

std::optional<double> number_of(const json& value) {
  if (value.is_object() && value.contains("median")) return value["median"].get<double>();
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::optional<double> quotient(std::optional<double> a, std::optional<double> b) {
  if (!a || !b || *b == 0) return std::nullopt;
  return *a / *b;
}

// ---- Tables ----

std::string cell(const json& rows, const json& key, const Column& column) {
  json value = value_in(rows, key, column.figure);
  auto number = number_of(value);
  if (column.per) number = quotient(number, number_of(value_in(rows, key, column.per)));
  if (number) return fmt::format("{:.{}f}", *number / column.unit, column.digits);
  return value.is_string() ? value : "-";
}

class TableText {
 public:
  TableText(const Table& table, const json& rows) : table_(table), rows_(rows_with(rows, table.only)) {
    for (const json& row : rows_) {
      bool has = std::ranges::any_of(table.columns, [&](const Column& c) { return !!figure_of(row, c.figure); });
      if (has) shown_.push_back(row);
    }
    across_ = table.across ? keys_of(shown_, {table.across}) : std::vector<json>{json::object()};
    has_beside_ = table.beside && std::ranges::count(across_, json{{table.across, table.beside}});
  }

  std::string text() const {
    std::vector<Cells> lines = {heads()};
    for (const json& key : keys_of(shown_, table_.rows)) lines.push_back(line(key));
    if (lines.size() == 1) return "";
    return format_table(lines) + table_.note + (*table_.note ? "\n" : "");
  }

 private:
  // Adds to the first cells of a line those of all columns, and then those of the quotients.
  template <typename Cell, typename Ratio>
  Cells with(Cells cells, Cell cell_of, Ratio ratio_of) const {
    for (const json& across : across_) {
      for (const Column& column : table_.columns) cells.push_back(cell_of(across, column));
    }
    for (const json& across : across_) {
      if (has_beside_ && across[table_.across] != table_.beside) cells.push_back(ratio_of(across));
    }
    return cells;
  }

  Cells heads() const {
    Cells cells(table_.rows.begin(), table_.rows.end());
    cells[0] = table_.head;
    auto head = [this](const json& across, const Column& column) {
      if (!table_.across) return std::string(column.head);
      return word(across[table_.across]) + (*column.head ? fmt::format(" {}", column.head) : "");
    };
    return with(cells, head, [this](const json& across) {
      return fmt::format("{} / {}", table_.beside, word(across[table_.across]));
    });
  }

  Cells line(const json& key) const {
    Cells cells;
    for (const char* member : table_.rows) cells.push_back(word(key[member]));
    return with(
        cells, [&](const json& across, const Column& column) { return cell(rows_, merged(key, across), column); },
        [&](const json& across) { return ratio(key, across); });
  }

  std::vector<double> runs(const json& key, const json& across) const {
    json value = value_in(rows_, merged(key, across), table_.columns[0].figure);
    return value.is_object() ? value["runs"].get<std::vector<double>>() : std::vector<double>();
  }

  // The median of the repetitions' own quotients, because configurations run in turn; of one column, also their range.
  std::string ratio(const json& key, const json& across) const {
    auto ours = runs(key, {{table_.across, table_.beside}}), theirs = runs(key, across);
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); i++) ratios.push_back(ours[i] / theirs[i]);
    if (ratios.empty()) return "-";
    std::string text = fmt::format("{:.2f}x", median(ratios));
    if (across_.size() > 2 || ratios.size() == 1) return text;
    return text + fmt::format(" ({:.2f} to {:.2f})", std::ranges::min(ratios), std::ranges::max(ratios));
  }

  const Table& table_;
  const json rows_;
  json shown_ = json::array();  // those with a figure of the table
  std::vector<json> across_;
  bool has_beside_;
};

// ---- Goals ----

// The members that identify a row: its words and numbers. Its figures are objects and lists.
json key_of(const json& row) {
  json key = json::object();
  for (const auto& [name, value] : row.items()) {
    if (value.is_primitive() && !value.is_null()) key[name] = value;
  }
  return key;
}

std::string filled_in(std::string text, const json& row) {
  for (size_t at = text.find('{'); at != text.npos; at = text.find('{', at)) {
    size_t end = text.find('}', at);
    std::string value = word(row[text.substr(at + 1, end - at - 1)]);
    text.replace(at, end - at + 1, value);
    at += value.size();
  }
  return text;
}

std::optional<double> measured(const Target& target, const json& rows, const json& row) {
  auto value = figure_of(row, target.figure);
  if (target.per) {
    std::optional<double> divisor;
    for (const json& other : rows_with(rows, merged(key_of(row), target.beside))) {
      auto found = figure_of(other, target.per);
      if (found) divisor = std::max(*found, divisor.value_or(*found));
    }
    value = quotient(value, divisor);
  }
  return value ? std::optional(*value * target.scale) : value;
}

// Whether the goal is for the same thing but for the member whose worst value counts.
bool is_worse(const Goal& goal, const Goal& known) {
  return goal.at_least ? goal.measured < known.measured : goal.measured > known.measured;
}

// ---- Charts ----

using Points = decltype(LineChart::Series::points);

Points points_of(const Curves& curves, const json& rows, const json& key, const char* figure) {
  Points points;
  for (const json& row : rows) {
    if (!has_members(row, key)) continue;
    if (!curves.x) {
      for (const json& point : row.value(figure, json::array())) points.emplace_back(point[0], point[1]);
    } else if (auto y = figure_of(row, figure)) {
      points.emplace_back(row[curves.x].get<double>(), *y / curves.unit);
    }
  }
  return points;
}

std::vector<LineChart::Series> series_of(const Curves& curves, const json& rows) {
  std::vector<LineChart::Series> all;
  for (const char* figure : curves.figures) {
    for (const json& key : keys_of(rows, curves.series)) {
      std::string name = joined(key, curves.series);
      if (curves.figures.size() > 1) name = fmt::format("{}, {}", figure, name);
      all.push_back({name, points_of(curves, rows, key, figure)});
    }
  }
  return all;
}

LineChart line_chart(const Curves& curves, const json& rows, const std::string& title) {
  LineChart chart{title, curves.x_label, curves.y_label, curves.x_max, curves.y_max, series_of(curves, rows)};
  if (chart.y_max == 0) chart.y_max = top_of(chart.series);
  for (LineChart::Series& series : chart.series) {
    for (auto& [x, y] : series.points) {
      if (curves.x_max == 0) chart.x_max = std::max(chart.x_max, x);
      y = std::min(y, chart.y_max);
    }
  }
  return chart;
}

void add_line_charts(const Curves& curves, const json& rows, std::vector<LineChart>* charts) {
  if (curves.panels.empty()) return charts->push_back(line_chart(curves, rows, curves.title));
  for (const json& panel : keys_of(rows, curves.panels)) {
    std::string title = fmt::format("{}{}{}", curves.title, *curves.title ? ", " : "", joined(panel, curves.panels));
    LineChart chart = line_chart(curves, rows_with(rows, panel), title);
    if (chart.x_max > 0) charts->push_back(std::move(chart));
  }
}

Chart bar_chart(const Curves& curves, const json& rows) {
  Chart chart{curves.title, curves.y_label, {}, {}};
  std::vector<json> groups = keys_of(rows, {curves.x});
  for (const json& group : groups) chart.groups.push_back(word(group[curves.x]));
  for (const json& key : keys_of(rows, curves.series)) {
    chart.series.push_back({joined(key, curves.series), {}});
    for (const json& group : groups)
      chart.series.back().values.push_back(
          number_of(value_in(rows, merged(key, group), curves.figures[0])).value_or(-1));
  }
  return chart;
}

bool is_bars(const Curves& curves, const json& rows) { return curves.x && rows[0].value(curves.x, json()).is_string(); }

// Calls show(suite, rows) for each suite that has rows.
template <typename Show>
void for_each_suite(const Benchmark& benchmark, const json& document, Show show) {
  for (const Suite& suite : benchmark.suites) {
    json rows = rows_with(document["rows"], {{"suite", suite.name}});
    if (!rows.empty()) show(suite, rows);
  }
}

std::string settings_text(const json& settings) {
  std::string text;
  for (const auto& [name, value] : settings.items()) {
    bool shown = (value.is_number() || value.is_string()) && name != "bytes" && name != "local_share";
    if (shown) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, word(value));
  }
  return text;
}

}  // namespace

// A list stands for any of its values.
bool has_members(const json& row, const json& members) {
  return std::ranges::all_of(members.items(), [&](const auto& member) {
    auto found = row.find(member.key());
    if (found == row.end()) return false;
    return member.value().is_array() ? std::ranges::count(member.value(), *found) > 0 : *found == member.value();
  });
}

json merged(json members, const json& others) {
  if (!others.is_null()) members.merge_patch(others);
  return members;
}

std::optional<double> figure_of(const json& row, const std::string& figure) { return number_of(value_of(row, figure)); }

std::string text_of(const Benchmark& benchmark, const json& document) {
  std::string text = fmt::format("{}\n{}\n\n", machine_text(document["machine"]), settings_text(document["settings"]));
  for_each_suite(benchmark, document, [&](const Suite& suite, const json& rows) {
    for (const Table& table : suite.tables) {
      std::string shown = TableText(table, rows).text();
      text += shown + (shown.empty() ? "" : "\n");
    }
    text += suite.more_text(rows);
  });
  for (const auto& [what, why] : document["skipped"].items())
    text += fmt::format("{}: not run: {}\n", what, why.get<std::string>());
  for (const json& problem : document.value("problems", json::array()))
    text += fmt::format("problem: {}\n", word(problem));
  return text + goals_text(goals_of(benchmark, document));
}

void add_goals(const Target& target, const json& rows, std::vector<Goal>* goals) {
  std::vector<Goal> ours;
  const auto& [limit, at_least, unit] = target.limit;
  for (const json& row : rows_with(rows, target.only)) {
    auto value = measured(target, rows, row);
    if (!value) continue;
    Goal goal = {filled_in(target.text, row), *value, limit, at_least, unit};
    auto known = std::ranges::find(ours, goal.name, &Goal::name);
    if (!target.worst || known == ours.end()) ours.push_back(goal);
    else if (is_worse(goal, *known)) *known = goal;
  }
  goals->insert(goals->end(), ours.begin(), ours.end());
}

std::vector<Goal> goals_of(const Benchmark& benchmark, const json& document) {
  std::vector<Goal> goals;
  for_each_suite(benchmark, document, [&](const Suite& suite, const json& rows) {
    for (const Target& target : suite.targets) add_goals(target, rows, &goals);
  });
  return goals;
}

std::string goals_text(const std::vector<Goal>& goals) {
  if (goals.empty()) return "";
  std::string text = "Goals of the design. They depend on the machine: one that is not reached is no error.\n";
  for (const Goal& goal : goals) text += goal.text() + "\n";
  return text;
}

NamedFiles plots_of(const Benchmark& benchmark, const json& document) {
  std::map<std::string, std::vector<LineChart>> lines;
  std::map<std::string, std::string> files;
  for_each_suite(benchmark, document, [&](const Suite& suite, const json& rows) {
    for (const Curves& curves : suite.charts) {
      std::string file = fmt::format("{}{}.svg", benchmark.name, curves.file);
      json shown = rows_with(rows, curves.only);
      if (shown.empty()) continue;
      if (is_bars(curves, shown)) files[file] = to_svg(bar_chart(curves, shown));
      else add_line_charts(curves, shown, &lines[file]);
    }
  });
  for (const auto& [file, panels] : lines) {
    if (!panels.empty()) files[file] = to_svg(panels);
  }
  return {files.begin(), files.end()};
}

}  // namespace farside::bench
