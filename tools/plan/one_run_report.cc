#include "tools/plan/one_run_report.h"

#include <fmt/format.h>

#include "base/bits.h"
#include "base/size.h"
#include "report/format.h"

namespace farside::plan {
namespace {

using nlohmann::json;

constexpr size_t kRows = 8;

std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

std::string slower(const json& point, const char* member) {
  return fmt::format("{:.0f}", 100 * (point[member].get<double>() - 1));
}

std::string target_text(const json& document) {
  return fmt::format("at most {:.3g}% slower", 100 * document["settings"]["slowdown"].get<double>());
}

// Rounded up to MiB, as --local takes it.
std::string local_text(double bytes) { return fmt::format("{}M", (static_cast<uint64_t>(bytes) + kMiB - 1) / kMiB); }

std::string heading(const json& document) {
  uint64_t processes = document["processes"];
  return fmt::format("{:.1f} s, {} process{}, heap at most {}; {} of it sampled, {} times\n",
                     document["seconds"].get<double>(), processes, processes == 1 ? "" : "es",
                     format_size(document["heap_bytes"].get<uint64_t>()), percent(document["rate"]),
                     document["rounds"].get<uint64_t>());
}

std::string table(const json& document) {
  double heap = document["heap_bytes"];
  std::vector<std::vector<std::string>> rows = {{"near", "of the heap", "fetches", "in streams", "slower by"}};
  const json& points = document["points"];
  size_t step = std::max<size_t>(1, points.size() / kRows);
  for (size_t i = step - 1; i < points.size(); i += step) {
    const json& point = points[i];
    double fetches = point["fetches"];
    rows.push_back(
        {format_size(point["near_bytes"].get<uint64_t>()), percent(point["near_bytes"].get<double>() / heap),
         fmt::format("{:.0f} +-{:.0f}", fetches, point["fetches_error"].get<double>()),
         percent(fetches > 0 ? point["in_streams"].get<double>() / fetches : 0),
         fmt::format("{}% ({}-{})", slower(point, "slowdown"), slower(point, "low"), slower(point, "high"))});
  }
  return format_table(rows);
}

std::string check_table(const json& document) {
  if (!document.contains("checked")) return "";
  std::vector<std::vector<std::string>> rows = {{"checked", "fetches", "predicted", "times as long", "predicted"}};
  for (const json& point : document["checked"]) {
    rows.push_back({fmt::format("{}% near", point["share"].get<unsigned>()),
                    fmt::format("{:.0f}", point["fetches"].get<double>()),
                    fmt::format("{:.0f}", point["predicted_fetches"].get<double>()),
                    fmt::format("{:.2f}", point["slowdown"].get<double>()),
                    fmt::format("{:.2f}", point["predicted_slowdown"].get<double>())});
  }
  return format_table(rows) + "\n";
}

std::string answer(const json& document) {
  const json& keep = document["keep"];
  if (keep.is_null())
    return fmt::format("No size saves memory at {}: this program uses all of its heap all the time; --local 100%\n",
                       target_text(document).substr(8));
  double bytes = keep["bytes"], heap = document["heap_bytes"];
  std::string command = document.contains("pid") ? fmt::format("farside ctl {} ", document["pid"].get<int>()) : "";
  return fmt::format("{}: {}--local {}   ({} of the heap; 95 % interval {} to {})\n", target_text(document), command,
                     local_text(bytes), percent(bytes / heap), local_text(keep["low"]), local_text(keep["high"]));
}

}  // namespace

std::string one_run_text(const json& document) {
  std::string text = heading(document) + "\n" + table(document) + "\n" + check_table(document);
  if (document["cut_off"]) text += "The samples' file was full before the program ended: what follows is not seen.\n";
  if (!document.value("complete", true)) text += "Stopped by a signal: what follows is of the time until then.\n";
  return text + answer(document);
}

std::vector<LineChart> one_run_chart(const json& document) {
  constexpr double kHighest = 3.2;  // times as long, an end of an axis: the curve leaves the picture there
  double heap = document["heap_bytes"], accepted = 1 + document["settings"]["slowdown"].get<double>();
  auto mib = [](double bytes) { return bytes / static_cast<double>(kMiB); };
  LineChart::Series slowdown{"predicted", {}}, target{target_text(document), {{0, accepted}, {mib(heap), accepted}}},
      keep{"answer", {}};
  double x_before = 0, y_before = 0;
  for (const json& point : document["points"]) {
    double x = mib(point["near_bytes"]), y = point["slowdown"];
    double at_edge = y_before > kHighest ? (y_before - kHighest) / (y_before - y) : 0;
    if (at_edge > 0 && at_edge < 1) slowdown.points.emplace_back(x_before + at_edge * (x - x_before), kHighest);
    if (y <= kHighest) slowdown.points.emplace_back(x, y);
    x_before = x, y_before = y;
  }
  if (!document["keep"].is_null()) {
    double bytes = document["keep"]["bytes"];
    keep = {fmt::format("answer: {} near", local_text(bytes)), {{mib(bytes), 0}, {mib(bytes), accepted}}};
  }
  return {{"Time by near memory", "MiB near", "times all near", mib(heap), kHighest, {slowdown, target, keep}}};
}

}  // namespace farside::plan
