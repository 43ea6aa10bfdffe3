// Where the preload library is, and how it gets into a program.
#pragma once
#include <string>

#include "base/status.h"

namespace farside {

// Looks beside this executable: <prefix>/lib/farside where installed, the heap folder in a build tree.
Result<std::string> find_preload_library();

// LD_PRELOAD's value with the library appended to what is there already.
Result<std::string> preload_list(const char* present, const std::string& library);

}  // namespace farside
