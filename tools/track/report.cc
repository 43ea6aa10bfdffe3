#include "tools/track/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "report/chart.h"

namespace farside::track {
namespace {

using nlohmann::json;

constexpr const char* kNames[] = {"64 B", "4 KiB", "2 MiB"};
constexpr uint64_t kManyUnseen = 1024;  // pages; a program's start touches some hundred, for reading
constexpr double kMiBytes = static_cast<double>(kMiB);

std::string times(const Changes& changes, uint64_t granularity) {
  if (changes.bytes == 0) return "-";
  double value = changes.amplification(granularity);
  return value < 100 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

json changes_to_json(const Changes& changes) {
  json dirty, amplification;
  for (uint64_t granularity : kGranularities) {
    std::string name = std::to_string(granularity);
    dirty[name] = changes.dirty_bytes(granularity);
    amplification[name] = changes.bytes == 0 ? json() : json(changes.amplification(granularity));
  }
  return {{"changed_bytes", changes.bytes},
          {"dirty_bytes", dirty},
          {"amplification", amplification},
          {"written_pages", changes.written_pages},
          {"uncompared_pages", changes.uncompared_pages},
          {"vanished_pages", changes.vanished_pages},
          {"lines_per_page", changes.lines_per_page},
          {"run_lengths", changes.run_lengths}};
}

json window_to_json(const Window& window) {
  json result = changes_to_json(window.changes);
  result["begin_seconds"] = window.begin_seconds;
  result["seconds"] = window.seconds;
  result["compared_pages"] = window.compared_pages;
  result["left_out_bytes"] = window.left_out_bytes;
  result["write_faults"] = window.write_faults;
  result["looking_seconds"] = window.looking_seconds;
  result["comparing_seconds"] = window.comparing_seconds;
  return result;
}

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.2f} %", 100 * part / whole) : "-";
}

std::string shape_text(const Histogram& histogram, const char* what) {
  unsigned longest = kLinesPerPage;
  while (longest > 0 && histogram[longest - 1] == 0) longest--;
  return fmt::format("farside: {}: half have {} or fewer, nine in ten {} or fewer, at most {}\n", what,
                     quantile_of(histogram, 0.5), quantile_of(histogram, 0.9), longest);
}

std::string overhead_text(const Overhead& overhead) {
  std::string text = fmt::format(
      "farside: cost: {:.2f} s of CPU for the tracker ({} of {:.1f} s), main thread stopped {} times for {:.1f} ms in "
      "all, {} kept\n",
      overhead.tracker_cpu_seconds, share_text(overhead.tracker_cpu_seconds, overhead.elapsed_seconds),
      overhead.elapsed_seconds, overhead.stops, overhead.stopped_seconds * 1e3, format_size(overhead.snapshot_bytes));
  if (overhead.write_fault_ns == 0) return text;
  return text + fmt::format(
                    "farside: cost: {} first writes to protected pages took the program about {:.1f} ms ({:.2f} us "
                    "each, measured here; {})\n",
                    overhead.write_faults, overhead.fault_seconds() * 1e3, overhead.write_fault_ns / 1e3,
                    share_text(overhead.fault_seconds(), overhead.elapsed_seconds));
}

// A chart over time of the `shown` granularities. All have a series, so that charts share a legend. Windows in which
// fewer bytes changed are left out.
template <typename Value>
LineChart over_time(const Report& report, const char* title, const char* unit, std::vector<size_t> shown, Value value,
                    uint64_t least_changed = 0) {
  LineChart chart{title, "seconds", unit, 1, 1, {}};
  for (size_t i = 0; i < std::size(kGranularities); i++) {
    chart.series.push_back({kNames[i], {}});
    if (std::find(shown.begin(), shown.end(), i) == shown.end()) continue;
    for (const Window& window : report.windows) {
      if (window.changes.bytes < least_changed) continue;
      double end = window.begin_seconds + window.seconds;
      chart.series[i].points.emplace_back(end, value(window.changes, kGranularities[i]));
      chart.x_max = std::max(chart.x_max, end);
    }
  }
  chart.y_max = top_of(chart.series);
  return chart;
}

LineChart distribution(const Histogram& histogram, const char* title, const char* label) {
  LineChart chart{title, label, "share", kLinesPerPage, 1, {{kNames[0], {{0, 0}}}}};
  auto shares = cumulate(histogram);
  for (unsigned i = 0; i < kLinesPerPage; i++) {
    chart.series[0].points.emplace_back(i + 1, i == 0 ? 0 : shares[i - 1]);
    chart.series[0].points.emplace_back(i + 1, shares[i]);
  }
  return chart;
}

}  // namespace

Changes Report::total() const {
  Changes sum;
  for (const Window& window : windows) sum.add(window.changes);
  return sum;
}

uint64_t Report::unseen_pages() const {
  uint64_t sum = 0;
  for (const Window& window : windows) sum += window.unseen_pages();
  return sum;
}

std::string table_head() {
  return fmt::format(
      "{:>8} {:>10} {:>32} {:>25} {:>9} {:>8}\n{:>8} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7} {:>9} {:>8}\n", "",
      "", "dirty, at a granularity of", "times the changed bytes", "pages", "tracker", "seconds", "changed", kNames[0],
      kNames[1], kNames[2], kNames[0], kNames[1], kNames[2], "written", "busy");
}

std::string table_row(const Window& window) {
  const Changes& changes = window.changes;
  std::string row = fmt::format("{:>8.1f} {:>10}", window.begin_seconds + window.seconds, format_size(changes.bytes));
  for (uint64_t granularity : kGranularities)
    row += fmt::format(" {:>10}", format_size(changes.dirty_bytes(granularity)));
  constexpr int kWidths[] = {8, 8, 7};
  for (size_t i = 0; i < std::size(kGranularities); i++) {
    row += fmt::format(" {:>{}}", times(changes, kGranularities[i]), kWidths[i]);
  }
  double busy = window.looking_seconds + window.comparing_seconds;
  return row + fmt::format(" {:>9} {:>5.0f} ms\n", changes.written_pages, busy * 1e3);
}

std::string summary(const Report& report) {
  Changes total = report.total();
  std::string text = fmt::format("farside: {} changed in {} windows of {:g} s; dirty:", format_size(total.bytes),
                                 report.windows.size(), report.window_seconds);
  for (size_t i = 0; i < std::size(kGranularities); i++) {
    text += fmt::format("{} {} at {} ({} times)", i == 0 ? "" : ",", format_size(total.dirty_bytes(kGranularities[i])),
                        kNames[i], times(total, kGranularities[i]));
  }
  text += "\n";
  if (total.pages > 0) {
    text += shape_text(total.lines_per_page, "lines changed of a dirty page");
    text += shape_text(total.run_lengths, "lines changed in a row");
  }
  text += fmt::format("farside: {} pages were written, {} of them without a change\n", total.written_pages,
                      total.silent_pages());
  if (total.uncompared_pages > 0) {
    text += fmt::format(
        "farside: {} written pages could not be compared: their previous content is not known; a larger "
        "--memory may help\n",
        total.uncompared_pages);
  }
  if (total.vanished_pages > 0) {
    text += fmt::format("farside: {} written pages were unmapped before they could be read; shorter windows see more\n",
                        total.vanished_pages);
  }
  if (uint64_t unseen = report.unseen_pages(); unseen > kManyUnseen && unseen > total.written_pages / 4) {
    text += fmt::format(
        "farside: up to {} were touched and given back within a window, and are in no figure; shorter windows see "
        "more, "
        "as with --window {:g}\n",
        format_size(unseen * kPageSize), std::max(0.01, report.window_seconds / 5));
  }
  uint64_t left_out = report.windows.empty() ? 0 : report.windows.back().left_out_bytes;
  if (left_out > 0) {
    text += fmt::format("farside: {} of addresses were not tracked: a userfaultfd of the program serves them\n",
                        format_size(left_out));
  }
  text += fmt::format("farside: writes were tracked by: {}{}\n", report.method,
                      report.why_not.empty() ? "" : " (" + report.why_not + ")");
  return text + overhead_text(report.overhead);
}

json to_json(const Report& report) {
  const Overhead& overhead = report.overhead;
  json result = {{"program", report.program},
                 {"pid", report.pid},
                 {"method", report.method},
                 {"why_not_better", report.why_not},
                 {"window_seconds", report.window_seconds},
                 {"total", changes_to_json(report.total())},
                 {"unseen_pages", report.unseen_pages()},
                 {"overhead",
                  {{"elapsed_seconds", overhead.elapsed_seconds},
                   {"tracker_cpu_seconds", overhead.tracker_cpu_seconds},
                   {"stopped_seconds", overhead.stopped_seconds},
                   {"stops", overhead.stops},
                   {"write_faults", overhead.write_faults},
                   {"write_fault_ns", overhead.write_fault_ns},
                   {"snapshot_bytes", overhead.snapshot_bytes}}}};
  result["windows"] = json::array();
  for (const Window& window : report.windows) result["windows"].push_back(window_to_json(window));
  return result;
}

std::string to_csv(const Report& report) {
  std::string text =
      "begin_seconds,seconds,changed_bytes,dirty_64,dirty_4096,dirty_2097152,amplification_64,amplification_4096,"
      "amplification_2097152,written_pages,uncompared_pages,looking_seconds,comparing_seconds\n";
  for (const Window& window : report.windows) {
    const Changes& changes = window.changes;
    text += fmt::format("{:.3f},{:.3f},{}", window.begin_seconds, window.seconds, changes.bytes);
    for (uint64_t granularity : kGranularities) text += fmt::format(",{}", changes.dirty_bytes(granularity));
    for (uint64_t granularity : kGranularities) {
      text += changes.bytes == 0 ? "," : fmt::format(",{:.4f}", changes.amplification(granularity));
    }
    text += fmt::format(",{},{},{:.6f},{:.6f}\n", changes.written_pages, changes.uncompared_pages,
                        window.looking_seconds, window.comparing_seconds);
  }
  return text;
}

std::string to_svg(const Report& report) {
  auto mebibytes = [](const Changes& changes, uint64_t granularity) {
    return static_cast<double>(changes.dirty_bytes(granularity)) / kMiBytes;
  };
  auto factor = [](const Changes& changes, uint64_t granularity) { return changes.amplification(granularity); };
  Changes total = report.total();
  return to_svg(std::vector<LineChart>{
      over_time(report, "Dirty in a window, by granularity", "MiB", {0, 1}, mebibytes),
      over_time(report, "The same with blocks of 2 MiB", "MiB", {0, 1, 2}, mebibytes),
      over_time(report, "Dirty bytes over changed bytes", "times", {0, 1}, factor, kPageSize),
      over_time(report, "The same with blocks of 2 MiB", "times", {0, 1, 2}, factor, kPageSize),
      distribution(total.lines_per_page, "Dirty pages by lines changed", "lines changed of 64, or fewer"),
      distribution(total.run_lengths, "Runs of changed lines by length", "lines in a row, or fewer")});
}

}  // namespace farside::track
