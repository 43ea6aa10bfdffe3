// Charts as SVG: grouped bars, one per series, with the value above each bar; or lines in panels. Pure functions.
#pragma once
#include <string>
#include <vector>

namespace farside {

struct Chart {
  std::string title, unit;
  std::vector<std::string> groups;
  struct Series {
    std::string name;
    std::vector<double> values;  // one per group; negative: no bar
  };
  std::vector<Series> series;
};

std::string to_svg(const Chart& chart);

// One panel. Both axes begin at 0 and end at a round number that is not below x_max and y_max.
struct LineChart {
  std::string title, x_label, y_label;
  double x_max, y_max;
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
  };
  std::vector<Series> series;
};

// A value for y_max: that of the largest point.
double top_of(const std::vector<LineChart::Series>& series);

// Two panels per row, or one that is as wide. Consecutive panels with the same series (or the first of those series)
// share one legend above them, if they have names. A series without points is omitted; the others keep their colours.
// The heading is shortened to fit.
std::string to_svg(const std::vector<LineChart>& panels, const std::string& heading = "");

}  // namespace farside
