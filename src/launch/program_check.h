// Checks a program before it is started: does it exist, and can the preload library work in it? The dynamic linker
// silently ignores LD_PRELOAD for setuid programs and programs with capabilities, and static programs have no dynamic
// linker.
#pragma once
#include <string>
#include <string_view>

#include "base/status.h"

namespace farside {

// The file that a shell would run for `name`. Searches `search_path`, a list like PATH, unless the name has a slash.
Result<std::string> find_program(std::string_view name, std::string_view search_path);

// Follows #! lines to the interpreter. The text of an error names the file and the problem.
Status check_program(const std::string& path);

// True for a static executable of this processor. check_program() refuses it, but static_loader (launch/installation.h)
// can be the program in its place.
bool is_static_program(const std::string& path);

// The exit status that shells use for a program that cannot be run: 127 if it was not found, otherwise 126.
int exit_status_of(const Status& status);

}  // namespace farside
