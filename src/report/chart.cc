#include "report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "report/svg.h"

namespace farside {
namespace {

constexpr double kWidth = 860, kHeight = 400;
constexpr double kLeft = 40, kRight = 20, kTop = 84, kBottom = 36;
constexpr const char* kColours[] = {"#0b6e99", "#4fa3c7", "#a9c9da", "#d1495b",
                                    "#8d99a6", "#3a7d44", "#e09f3e", "#24292f"};
constexpr double kPanelWidth = 430, kPanelHeight = 330, kLegendRow = 20, kHeadingHeight = 24;
constexpr const char* kText = "#24292f";

std::string label(double x, double y, int size, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" font-size="{}" text-anchor="{}" fill="{}">{}</text>)", x, y, size,
                     anchor, kText, escape_svg(text)) +
         "\n";
}

std::string box(double x, double y, double width, double height, size_t colour) {
  return fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="1.5" fill="{}"/>)", x, y, width,
                     height, kColours[colour % std::size(kColours)]) +
         "\n";
}

double largest_value(const Chart& chart) {
  double largest = 0;
  for (const auto& series : chart.series) {
    for (double value : series.values) largest = std::max(largest, value);
  }
  return largest > 0 ? largest : 1;
}

// In rows, from `*y` downwards, to which their height is added. Empty names are omitted.
std::string legend(double* y, double right, const std::vector<std::string>& names) {
  std::string svg;
  double x = kLeft;
  for (size_t i = 0; i < names.size(); i++) {
    if (names[i].empty()) continue;
    double width = 40 + 7 * static_cast<double>(names[i].size());
    if (x + width > right) {
      x = kLeft;
      *y += kLegendRow;
    }
    svg += box(x, *y, 12, 12, i) + label(x + 18, *y + 10.5, 12, "start", names[i]);
    x += width;
  }
  *y += kLegendRow;
  return svg;
}

std::string heading_of(const std::string& text, double width) {
  constexpr double kLetter = 8;
  return label(kLeft, 24, 14, "start", shorten(text, static_cast<size_t>(width / kLetter), "..."));
}

template <typename Series>
std::vector<std::string> names_of(const std::vector<Series>& series) {
  std::vector<std::string> names;
  names.reserve(series.size());
  for (const auto& s : series) names.push_back(s.name);
  return names;
}

using Panels = std::span<const LineChart>;

// The names of the series that have a point in some panel; "" for the others.
std::vector<std::string> names_shown(Panels panels) {
  std::vector<std::string> names(panels[0].series.size());
  for (const LineChart& chart : panels) {
    for (size_t i = 0; i < chart.series.size(); i++) {
      if (!chart.series[i].points.empty()) names.at(i) = chart.series[i].name;
    }
  }
  return names;
}

std::string head(double width, double height) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" font-family="sans-serif" role="img">)"
      "\n"
      R"(<rect width="{0}" height="{1}" fill="#ffffff"/>)"
      "\n",
      width, height);
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"/>)", x1, y1, x2, y2, colour) +
         "\n";
}

std::string axis_text(double value) {
  if (value < 1000) return fmt::format("{:.3g}", value);
  if (value < 10'000) return fmt::format("{:.0f}", value);
  return value < 1e6 ? fmt::format("{:.3g}k", value / 1e3) : fmt::format("{:.3g}M", value / 1e6);
}

constexpr int kTicks = 4;  // of an axis, which begins at 0

// Where an axis ends that has to show `largest`: a number whose quarters, the ticks, are short.
double axis_end(double largest) {
  constexpr double kEnds[] = {1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 6.4, 8, 10};
  double power = std::pow(10, std::floor(std::log10(largest)));
  for (double end : kEnds) {
    if (end * power >= largest * (1 - 1e-9)) return end * power;
  }
  return 10 * power;
}

// Reads upwards.
std::string rotated_label(double x, double y, const std::string& text) {
  return fmt::format(R"svg(<g transform="translate({:.1f},{:.1f}) rotate(270)">)svg", x, y) + "\n" +
         label(0, 0, 11, "middle", text) + "</g>\n";
}

std::string panel(const LineChart& chart, double left, double top, double panel_width) {
  constexpr double kInset = 58, kBelow = 44, kAbove = 28;
  double x_end = axis_end(chart.x_max), y_end = axis_end(chart.y_max);
  double x0 = left + kInset, y0 = top + kPanelHeight - kBelow;
  double width = panel_width - kInset - 14, height = kPanelHeight - kBelow - kAbove;
  std::string svg = label(x0, top + 18, 14, "start", chart.title);
  for (int i = 0; i <= kTicks; i++) {
    double share = static_cast<double>(i) / kTicks;
    svg += line(x0, y0 - share * height, x0 + width, y0 - share * height, i == 0 ? kText : "#e3e6e8");
    svg += label(x0 - 6, y0 - share * height + 4, 11, "end", axis_text(share * y_end));
    svg += label(x0 + share * width, y0 + 16, 11, "middle", axis_text(share * x_end));
  }
  svg += label(x0 + width / 2, y0 + 34, 11, "middle", chart.x_label);
  svg += rotated_label(left + 14, y0 - height / 2, chart.y_label);
  for (size_t s = 0; s < chart.series.size(); s++) {
    if (chart.series[s].points.empty()) continue;
    svg += R"(<polyline fill="none" stroke-width="2" stroke=")" + std::string(kColours[s % std::size(kColours)]) +
           R"(" points=")";
    for (auto [x, y] : chart.series[s].points) {
      svg += fmt::format("{:.1f},{:.1f} ", x0 + x / x_end * width, y0 - y / y_end * height);
    }
    svg += "\"/>\n";
  }
  return svg;
}

// The number of leading panels that have the series of the first panel, or the first of those series.
size_t same_series(Panels panels) {
  auto all = names_of(panels[0].series);
  auto differs = [&](const LineChart& chart) {
    auto names = names_of(chart.series);
    return std::mismatch(names.begin(), names.end(), all.begin(), all.end()).first != names.end();
  };
  return static_cast<size_t>(std::find_if(panels.begin(), panels.end(), differs) - panels.begin());
}

// Panels that share a legend; there is none if no series has a name. Adds their height to *y.
std::string panel_group(Panels panels, double width, double* y) {
  size_t columns = std::min<size_t>(2, panels.size());
  double panel_width = width / static_cast<double>(columns);
  auto names = names_shown(panels);
  *y += 16;
  std::string svg = std::ranges::count(names, "") < std::ssize(names) ? legend(y, width, names) : "";
  for (size_t i = 0; i < panels.size(); i++) {
    size_t row = i / columns;
    svg += panel(panels[i], static_cast<double>(i % columns) * panel_width,
                 *y + static_cast<double>(row) * kPanelHeight, panel_width);
  }
  size_t rows = (panels.size() + columns - 1) / columns;
  *y += kPanelHeight * static_cast<double>(rows);
  return svg;
}

std::string bars(const Chart& chart) {
  double group_width = (kWidth - kLeft - kRight) / static_cast<double>(chart.groups.size());
  double bar_width = group_width * 0.8 / static_cast<double>(chart.series.size());
  double scale = (kHeight - kTop - kBottom) / largest_value(chart), floor = kHeight - kBottom;
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
  std::string svg = head(kWidth, kHeight);
  svg += label(kLeft, 28, 16, "start", fmt::format("{} ({})", chart.title, chart.unit));
  double legend_top = 48;
  if (!chart.groups.empty() && !chart.series.empty())
    svg += legend(&legend_top, kWidth, names_of(chart.series)) + bars(chart);
  return svg + line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, kText) + "</svg>\n";
}

double top_of(const std::vector<LineChart::Series>& series) {
  double largest = 0;
  for (const auto& line : series) {
    for (auto [x, y] : line.points) largest = std::max(largest, y);
  }
  return largest > 0 ? largest : 1;
}

std::string to_svg(const std::vector<LineChart>& panels, const std::string& heading) {
  double width = kPanelWidth * (panels.size() == 1 ? 1 : 2), height = heading.empty() ? 0 : kHeadingHeight;
  std::string svg = heading.empty() ? "" : heading_of(heading, width - kLeft);
  for (Panels left = panels; !left.empty();) {
    Panels group = left.first(same_series(left));
    svg += panel_group(group, width, &height);
    left = left.subspan(group.size());
  }
  return head(width, height) + svg + "</svg>\n";
}

}  // namespace farside
