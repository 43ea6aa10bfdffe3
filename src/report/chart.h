// Charts as SVG: bars in groups, one for each series, the value on top of it; or lines in panels.
#pragma once
#include <string>
#include <vector>

namespace farside {

struct Chart {
  std::string title, unit;
  std::vector<std::string> groups;
  struct Series {
    std::string name;
    std::vector<double> values;  // one for each group; negative: no bar
  };
  std::vector<Series> series;
};

std::string to_svg(const Chart& chart);

// One panel: both axes begin at 0.
struct LineChart {
  std::string title, x_label, y_label;
  double x_most, y_most;
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
  };
  std::vector<Series> series;
};

// For y_most: a little more than the largest of them.
double top_of(const std::vector<LineChart::Series>& series);

// Two panels beside each other in a row. The legend stands once above all panels that follow each other and have the
// same series (or the first of them). A series without points is left out, and the others keep their colours.
std::string to_svg(const std::vector<LineChart>& panels);

}  // namespace farside
