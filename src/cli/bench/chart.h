// A bar chart as SVG: groups of bars, one bar for each series, the value on top of it.
#pragma once
#include <string>
#include <vector>

namespace farside::cli::bench {

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

}  // namespace farside::cli::bench
