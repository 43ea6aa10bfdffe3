#include "tools/top/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/size.h"
#include "report/format.h"

namespace farside::top {
namespace {

struct SortKey {
  std::string name;
  std::function<bool(const Row&, const Row&)> before;
};

template <typename Value>
auto largest_first(Value Row::*member) {
  return [member](const Row& a, const Row& b) { return a.*member > b.*member; };
}

template <typename Value>
auto smallest_first(Value Row::*member) {
  return [member](const Row& a, const Row& b) { return a.*member < b.*member; };
}

const std::vector<SortKey>& keys() {
  static const std::vector<SortKey> all = {
      {"pressure", largest_first(&Row::pressure)}, {"near", largest_first(&Row::near)},
      {"far", largest_first(&Row::far)},           {"budget", largest_first(&Row::budget)},
      {"faults", largest_first(&Row::faults)},     {"bytes", largest_first(&Row::bytes)},
      {"run", smallest_first(&Row::run)},          {"pid", smallest_first(&Row::pid)},
      {"program", smallest_first(&Row::program)}};
  return all;
}

bool matches(const Row& row, const std::string& filter) {
  return row.program.find(filter) != std::string::npos || std::to_string(row.pid) == filter;
}

std::vector<std::string> cells(const Row& row) {
  return {row.program,
          std::to_string(row.pid),
          row.run == 0 ? "-" : std::to_string(row.run),
          format_size(row.near),
          format_size(row.far),
          format_size(row.budget),
          fmt::format("{:.0f}", row.faults),
          format_size(static_cast<uint64_t>(row.bytes)),
          fmt::format("{:.0f}%", 100 * row.pressure),
          row.transport};
}

}  // namespace

const std::vector<std::string>& sort_keys() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const SortKey& key : keys()) all.push_back(key.name);
    return all;
  }();
  return names;
}

std::vector<Row> arrange(std::vector<Row> rows, const View& view) {
  std::erase_if(rows, [&](const Row& row) { return !matches(row, view.filter); });
  auto key = std::ranges::find(keys(), view.sort, &SortKey::name);
  std::ranges::stable_sort(rows, key->before);
  if (view.reversed) std::ranges::reverse(rows);
  return rows;
}

std::string summary_line(const std::vector<Row>& rows) {
  uint64_t near = 0, far = 0;
  std::set<uint64_t> runs;
  for (const Row& row : rows) {
    near += row.near;
    far += row.far;
    if (row.run != 0) runs.insert(row.run);
  }
  return fmt::format("farside top: {} run{}, {} process{}; near {}, far {}", runs.size(), runs.size() == 1 ? "" : "s",
                     rows.size(), rows.size() == 1 ? "" : "es", format_size(near), format_size(far));
}

std::string to_text(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"PROGRAM", "PID", "RUN", "NEAR", "FAR", "BUDGET", "FAULTS/S", "BYTES/S", "PRESSURE", "SERVER"}};
  for (const Row& row : rows) table.push_back(cells(row));
  std::string aligned = format_table(table), text;
  size_t begin = 0;
  for (size_t line = 0; line < table.size(); line++) {
    size_t end = aligned.find('\n', begin);
    std::string last = line == 0 ? "ADVICE" : rows[line - 1].replies ? rows[line - 1].advice : "does not reply";
    text += aligned.substr(begin, end - begin) + (last.empty() ? "" : "  " + last) + "\n";
    begin = end + 1;
  }
  return text;
}

nlohmann::json to_json(const Row& row) {
  return {{"pid", row.pid},
          {"run", row.run},
          {"program", row.program},
          {"near_bytes", row.near},
          {"far_bytes", row.far},
          {"local_bytes", row.budget},
          {"faults_per_second", row.faults},
          {"bytes_per_second", row.bytes},
          {"pressure", row.pressure},
          {"transport", row.transport},
          {"advice", row.advice},
          {"replies", row.replies}};
}

}  // namespace farside::top
