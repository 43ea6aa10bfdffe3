// The preload library: its path, and the value of LD_PRELOAD that loads it.
#pragma once
#include <string>

#include "base/status.h"

namespace farside {

// The library of this installation (launch/installation.h). ENOENT if it is missing.
Result<std::string> find_preload_library();

// `present`, the current value of LD_PRELOAD or nullptr, with the library appended. EINVAL if the path contains a space
// or a colon.
Result<std::string> preload_list(const char* present, const std::string& library);

}  // namespace farside
