// The rows of `farside top` as a table: which are shown, in which order, as text and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/top/sampler.h"

namespace farside::top {

struct View {
  std::string sort = "pressure", filter = {};  // filter: a part of the program's name, or a process ID
  bool reversed = false;
};

// The columns by which rows are sorted: numbers from the largest on, the others from the smallest.
const std::vector<std::string>& sort_keys();

std::vector<Row> arrange(std::vector<Row> rows, const View& view);
std::string summary_line(const std::vector<Row>& rows);
// The first line has the names of the columns.
std::string to_text(const std::vector<Row>& rows);
nlohmann::json to_json(const Row& row);

}  // namespace farside::top
