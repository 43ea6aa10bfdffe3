// The document of `farside bench paging` for people: tables and a chart.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "report/chart.h"

namespace farside::bench {

std::string paging_text(const nlohmann::json& document);
Chart paging_chart(const nlohmann::json& document);

}  // namespace farside::bench
