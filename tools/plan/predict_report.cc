#include "tools/plan/predict_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/size.h"
#include "report/format.h"
#include "report/machine.h"
#include "tools/plan/plan_report.h"

namespace farside::plan {
namespace {

using nlohmann::json;
using Table = std::vector<std::vector<std::string>>;

constexpr unsigned kShown[] = {10, 25, 50, 75, 90, 100};  // percent; of the evaluated shares
constexpr std::array kDrawn = {"shm", "tcp", "Kona, RDMA", "CXL-like, by lines", "MAGE", "Fastswap", "swap on an SSD"};

bool cut_off(const json& document) { return document["observed"]["cut_off"]; }

std::string size_text(const json& bytes) {
  uint64_t value = bytes.get<uint64_t>();
  return value % 1024 ? fmt::format("{} B", value)
                      : fmt::format("{} {}", value >> (value < 1 << 20 ? 10 : 20), value < 1 << 20 ? "KiB" : "MiB");
}

const json& at_share(const json& points, unsigned share) {
  return *std::ranges::find_if(points, [&](const json& point) { return point["share"] == share; });
}

std::string heading(const json& document) {
  const json& seen = document["observed"];
  return fmt::format(
      "native {:.3f} s on {:.1f} processors; observed for {:.1f} s ({:.0f} times as long{}): {:.1f} million accesses, "
      "{:.1f} million to the heap of {}\n\n",
      document["native_s"]["min"].get<double>(), document["processors"].get<double>(), seen["seconds"].get<double>(),
      seen["slowdown"].get<double>(), cut_off(document) ? ", and cut off" : "", seen["accesses"].get<double>() / 1e6,
      seen["far_accesses"].get<double>() / 1e6, format_size(static_cast<uint64_t>(seen["heap_bytes"].get<double>())));
}

// Misses per 1000 accesses.
std::string curve_table(const json& document) {
  const json& curves = document["curves"];
  Table table = {{"misses of 1000 accesses"}};
  for (const json& curve : curves) table[0].push_back(size_text(curve["block"]));
  for (size_t i = 0; i < curves[0]["points"].size(); i++) {
    table.push_back({fmt::format("{}% near", curves[0]["points"][i]["share"].get<unsigned>())});
    for (const json& curve : curves) {
      const json& point = curve["points"][i];
      double reach = (point["high"].get<double>() - point["low"].get<double>()) / 2;
      std::string ratio = fmt::format("{:.3g}", 1000 * point["ratio"].get<double>());
      table.back().push_back(reach == 0 ? ratio : fmt::format("{} +-{:.2g}", ratio, 1000 * reach));
    }
  }
  table.push_back({"sampled"});
  for (const json& curve : curves) table.back().push_back(fmt::format("{:.3g}%", 100 * curve["rate"].get<double>()));
  return format_table(table);
}

std::string share_text(const json& share) {
  return share.is_null() ? "-" : fmt::format("{:.0f}%", share.get<double>());
}

std::string interval_text(const json& keep) {
  if (keep["share"].is_null()) return "more than all";
  std::string high = keep["high"].is_null() ? "all" : fmt::format("{:.0f}", keep["high"].get<double>());
  return fmt::format("{} ({:.0f}-{})", share_text(keep["share"]), keep["low"].get<double>(), high);
}

// A row per system, a column per share.
std::string system_table(const json& document, const std::string& title, const char* member, const char* format) {
  Table table = {{title, "us per miss"}};
  for (unsigned share : kShown) table[0].push_back(fmt::format("{}%", share));
  bool with_keep = std::string_view(member) == "slowdown";
  if (with_keep) table[0].push_back("keep near");
  for (const json& system : document["systems"]) {
    table.push_back({system["name"], fmt::format("{:.1f}", system["us"].get<double>())});
    for (unsigned share : kShown) {
      double value = at_share(system["points"], share)[member];
      table.back().push_back(fmt::format(fmt::runtime(format), value));
    }
    if (with_keep) table.back().push_back(interval_text(system["keep"]));
  }
  return format_table(table);
}

std::string check_table(const json& document) {
  if (!document.contains("checked")) return "";
  Table table = {{"checked: slowdown", "predicted", "measured", "off by"}};
  for (const json& point : document["checked"]) {
    table.push_back({fmt::format("{:.0f}% near", point["share"].get<double>()),
                     fmt::format("{:.2f}", point["predicted"].get<double>()),
                     fmt::format("{:.2f}", point["measured"].get<double>()),
                     fmt::format("{:+.0f}%", 100 * point["error"].get<double>())});
  }
  return format_table(table) + "\n";
}

std::string answer(const json& document) {
  const json& system = document["systems"][0];
  std::string name = system["name"];
  if (cut_off(document)) {
    return fmt::format(
        "The observed run was cut off after {:.0f} s, so there are no slowdowns: increase --seconds, or give "
        "the program less to do.\n",
        document["observed"]["seconds"].get<double>());
  }
  std::string condition = fmt::format("at most {:.3g} % slower", 100 * document["settings"]["slowdown"].get<double>());
  const json& keep = system["keep"];
  if (keep["share"].is_null()) {
    return fmt::format("{}: not even with all of it local, over {}\n", condition, name);
  }
  double share = keep["share"], bytes = document["observed"]["heap_bytes"];
  std::string high = keep["high"].is_null() ? "more than all" : fmt::format("{:.0f}", keep["high"].get<double>());
  return fmt::format("{}: keep {:.0f} % local (95 % interval {:.0f}-{}), {}, over {}\n", condition, share,
                     keep["low"].get<double>(), high, format_size(static_cast<uint64_t>(share / 100 * bytes)), name);
}

using Series = LineChart::Series;

Series series_of(const std::string& name, const json& points, auto value) {
  Series series{name, {}};
  for (const json& point : points) series.points.emplace_back(point["share"].get<double>(), value(point));
  return series;
}

std::optional<double> answered_share(const json& document) {
  const json& share = document["systems"][0]["keep"]["share"];
  return share.is_null() ? std::nullopt : std::optional<double>(share);
}

}  // namespace

std::string predict_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n" + heading(document) + curve_table(document) + "\n";
  text +=
      system_table(document, fmt::format("ns per access ({:.1f} all near)", document["local_amat_ns"].get<double>()),
                   "amat_ns", "{:.1f}") +
      "\n";
  if (!cut_off(document)) text += system_table(document, "slowdown", "slowdown", "{:.2f}") + "\n";
  return text + check_table(document) + answer(document);
}

std::vector<LineChart> predict_charts(const json& document) {
  LineChart misses{"Misses by share of near memory", "% of the heap near", "misses of 1000 accesses", 100, 0, {}};
  LineChart speed{"Throughput by share of near memory", "% of the heap near", "% of native", 100, 100, {}};
  for (const json& curve : document["curves"]) {
    misses.series.push_back(series_of(size_text(curve["block"]) + " blocks", curve["points"],
                                      [](const json& point) { return 1000 * point["ratio"].get<double>(); }));
    for (auto [share, ratio] : misses.series.back().points) misses.y_max = std::max(misses.y_max, ratio);
    speed.series.push_back({misses.series.back().name, {}});
  }
  misses.y_max = std::max(misses.y_max, 1e-3);
  if (cut_off(document)) return {misses};
  for (const json& system : document["systems"]) {
    std::string name = system["name"];
    bool drawn = std::ranges::any_of(
        kDrawn, [&](const char* part) { return name == part || name == fmt::format("Farside, {}", part); });
    if (!drawn) continue;
    speed.series.push_back(
        series_of(name, system["points"], [](const json& point) { return 100 / point["slowdown"].get<double>(); }));
    misses.series.push_back({name, {}});
  }
  for (const Series& series : answer_lines(document, answered_share(document))) {
    misses.series.push_back({series.name, {}});
    speed.series.push_back(series);
  }
  if (document.contains("checked")) {
    speed.series.push_back(series_of("measured", document["checked"],
                                     [](const json& point) { return 100 / point["measured"].get<double>(); }));
    misses.series.push_back({"measured", {}});
  }
  return {misses, speed};
}

}  // namespace farside::plan
