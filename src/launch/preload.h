// The preload library: its path, the value of LD_PRELOAD that loads it, and the token that it needs.
#pragma once
#include <string>
#include <string_view>

#include "base/status.h"

namespace farside {

// The library of this installation (launch/installation.h). ENOENT if it is missing.
Result<std::string> find_preload_library();

// Names a descriptor of the token in the environment, for the programs that are started from now on; it stays open. No
// descriptor for the empty token.
Status hand_over_token(std::string_view token);

// `present`, the current value of LD_PRELOAD or nullptr, with the library appended. EINVAL if the path contains a space
// or a colon.
Result<std::string> preload_list(const char* present, const std::string& library);

}  // namespace farside
