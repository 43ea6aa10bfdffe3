// `farside bench redis`: an unmodified redis-server, native, over far memory and on kernel swap.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "measure/statistics.h"

namespace farside::bench {

struct RedisSettings {
  uint64_t keys = 800000;
  uint64_t requests = 500000;
  double local = 0;  // share of the data that may be near
  unsigned repetitions = 3;
  bool zram = true;
  bool quiet = false;
};

Result<nlohmann::json> measure_redis(const RedisSettings& settings);
std::vector<Goal> redis_goals(const nlohmann::json& document);
std::string redis_text(const nlohmann::json& document);

// Parses the output of redis-benchmark --csv for one test: {"ops_per_s", "p50_us", "p99_us"}. EINVAL for any other
// text.
Result<nlohmann::json> parse_redis_csv(const std::string& text);

}  // namespace farside::bench
