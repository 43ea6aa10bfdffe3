// Reading and writing files of results.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace farside {

// Checks that the file can be written, before a long measurement. Leaves none that was missing. "" means no file.
Status check_writable(const std::string& file);

// Replaces the contents. "" means no file.
Status write_file(const std::string& file, const std::string& text);

// Names and contents. Writes the files into a directory until one cannot be written.
using NamedFiles = std::vector<std::pair<std::string, std::string>>;
Status write_files(const std::string& directory, const NamedFiles& files);

// Writes to FILE.part and renames it, so that readers see the old or the new contents, never a part of them.
Status replace_file(const std::string& file, const std::string& text);

// The contents; "" if the file cannot be read.
std::string read_file(const std::string& file);

Status make_directory(const std::string& path);

}  // namespace farside
