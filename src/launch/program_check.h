// Looks at a program before it is started: is it there, and can the preload library work in it? The dynamic linker
// ignores a preload silently in programs that it does not load or that run with more rights, so we must tell instead.
#pragma once
#include <string>
#include <string_view>

#include "base/status.h"

namespace farside {

// The file that a shell would run for `name`, searching `search_path` (as in PATH) unless the name has a slash.
Result<std::string> find_program(std::string_view name, std::string_view search_path);

// Follows #! lines to the interpreter. The text of an error says what is wrong with which file.
Status check_program(const std::string& path);

// The exit status that shells give for a program that cannot be run: 127 if it was not found, else 126.
int exit_status_of(const Status& status);

}  // namespace farside
