// The preload library: its path, the value of LD_PRELOAD that loads it, and the options of the run.
#pragma once
#include <string>
#include <string_view>

#include "abi/options.h"
#include "base/status.h"

namespace farside {

// The library of this installation (launch/installation.h). ENOENT if it is missing.
Result<std::string> find_preload_library();

// Names a descriptor of these options in the environment, for the programs that are started from now on; it stays open.
// Removes the variables of options, which it replaces. A run that is started has these options, and changes them by its
// own command line and by variables that are set from now on.
Status hand_over(const Options& options);
// The default options and this token, for runs that this program starts. Variables stay.
Status hand_over_token(std::string_view token);

// `present`, the current value of LD_PRELOAD or nullptr, with the library appended. EINVAL if the path contains a space
// or a colon.
Result<std::string> preload_list(const char* present, const std::string& library);

// `present`, the current value of GLIBC_TUNABLES or nullptr, with what programs with LD_AUDIT need (abi/static_tls.h).
std::string tunables_for_audit(const char* present);

}  // namespace farside
