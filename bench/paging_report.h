// The text output and the chart of `farside bench paging`, made from its JSON document.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "measure/chart.h"

namespace farside::bench {

std::string paging_text(const nlohmann::json& document);
Chart paging_chart(const nlohmann::json& document);

}  // namespace farside::bench
