#include "cli/bench/chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace farside::cli::bench {
namespace {

constexpr double kWidth = 860, kHeight = 400;
constexpr double kLeft = 40, kRight = 20, kTop = 84, kBottom = 36;
constexpr const char* kColours[] = {"#0b6e99", "#4fa3c7", "#a9c9da", "#d1495b", "#8d99a6"};
constexpr const char* kText = "#24292f";

std::string escape(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '<') safe += "&lt;";
    else if (c == '>') safe += "&gt;";
    else if (c == '&') safe += "&amp;";
    else safe += c;
  }
  return safe;
}

std::string label(double x, double y, int size, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="{}">{}</text>)", x, y, size,
                     anchor, kText, escape(text)) + "\n";
}

std::string box(double x, double y, double width, double height, size_t colour) {
  return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1.5" fill="{}"/>)", x, y, width,
                     height, kColours[colour % std::size(kColours)]) + "\n";
}

double largest(const Chart& chart) {
  double most = 0;
  for (const auto& series : chart.series) {
    for (double value : series.values) most = std::max(most, value);
  }
  return most > 0 ? most : 1;
}

std::string legend(const Chart& chart) {
  std::string svg;
  double x = kLeft;
  for (size_t i = 0; i < chart.series.size(); i++) {
    svg += box(x, 48, 12, 12, i) + label(x + 18, 58.5, 12, "start", chart.series[i].name);
    x += 40 + 7 * static_cast<double>(chart.series[i].name.size());
  }
  return svg;
}

std::string bars(const Chart& chart) {
  double group_width = (kWidth - kLeft - kRight) / static_cast<double>(chart.groups.size());
  double bar_width = group_width * 0.8 / static_cast<double>(chart.series.size());
  double scale = (kHeight - kTop - kBottom) / largest(chart), floor = kHeight - kBottom;
  std::string svg;
  for (size_t g = 0; g < chart.groups.size(); g++) {
    double x = kLeft + group_width * (static_cast<double>(g) + 0.1);
    svg += label(x + group_width * 0.4, floor + 20, 13, "middle", chart.groups[g]);
    for (size_t s = 0; s < chart.series.size(); s++, x += bar_width) {
      double value = chart.series[s].values[g];
      if (value < 0) continue;
      svg += box(x + 1, floor - value * scale, bar_width - 2, value * scale, s);
      svg += label(x + bar_width / 2, floor - value * scale - 4, 11, "middle", fmt::format("{:.3g}", value));
    }
  }
  return svg;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" font-family="sans-serif" role="img">)"
      "\n"
      R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
      "\n",
      kWidth, kHeight);
  svg += label(kLeft, 28, 16, "start", fmt::format("{} ({})", chart.title, chart.unit));
  if (!chart.groups.empty() && !chart.series.empty()) svg += legend(chart) + bars(chart);
  svg += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}"/>)", kLeft, kHeight - kBottom,
                     kWidth - kRight, kHeight - kBottom, kText);
  return svg + "\n</svg>\n";
}

}  // namespace farside::cli::bench
