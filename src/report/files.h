// Files of results.
#pragma once
#include <string>

#include "base/status.h"

namespace farside {

// Found out before something takes long. "" stands for no file.
Status check_writable(const std::string& file);

// "" stands for no file.
Status write_file(const std::string& file, const std::string& text);

// Writes it under another name first, so that nobody ever finds a half of it.
Status replace_file(const std::string& file, const std::string& text);

// "" where it cannot be read.
std::string read_file(const std::string& file);

Status make_directory(const std::string& path);

}  // namespace farside
