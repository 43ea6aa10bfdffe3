// The applications of bench/apps and the arguments with which `farside bench all` runs them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench {

struct Application {
  const char* name;
  const char* hinted_policy;              // policy for the run with hints; nullptr: no hints
  const char* figure = "ops_per_s";       // the member of its output that is compared
  std::vector<std::string> options = {};  // in addition to the options of all applications
};
std::span<const Application> applications();
std::vector<std::string> application_names();
const Application* find_application(const std::string& name);

// The folder of the applications. ENOENT if there is none.
Result<std::string> find_applications();

}  // namespace farside::bench
