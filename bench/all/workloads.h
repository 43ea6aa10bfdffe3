// The applications of bench/apps, as `farside bench all` runs them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench {

struct Application {
  const char* name;
  const char* hinted_policy;              // for the run with hints; nullptr: it has none
  const char* figure = "ops_per_s";       // member of its output that is compared
  std::vector<std::string> options = {};  // beside those that all take
};
std::span<const Application> applications();
std::vector<std::string> application_names();
const Application* find_application(const std::string& name);

// The folder that holds them.
Result<std::string> find_applications();

}  // namespace farside::bench
