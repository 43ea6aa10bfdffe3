#include "report/files.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace farside {

Status check_writable(const std::string& file) {
  if (file.empty()) return {};
  std::error_code ignored;
  bool existed = std::filesystem::exists(file, ignored);
  bool writable = std::ofstream(file, std::ios::app).good();
  int error = errno;
  if (writable && !existed) unlink(file.c_str());  // what fails later leaves no empty file
  if (writable) return {};
  return Status::error(error, "cannot write {}: {}; give another file", file, strerror(error));
}

Status write_file(const std::string& file, const std::string& text) {
  if (file.empty()) return {};
  std::ofstream stream(file);
  stream << text;
  if (stream.flush()) return {};
  return Status::error(EIO, "cannot write {}; check permissions and free space", file);
}

Status write_files(const std::string& directory, const NamedFiles& files) {
  for (const auto& [name, content] : files) {
    Status written = write_file((std::filesystem::path(directory) / name).string(), content);
    if (!written.ok()) return written;
  }
  return {};
}

Status replace_file(const std::string& file, const std::string& text) {
  std::string part = file + ".part";
  Status written = write_file(part, text);
  if (!written.ok()) return written;
  if (rename(part.c_str(), file.c_str()) == 0) return {};
  return Status::error(errno, "cannot rename {}: {}", part, strerror(errno));
}

std::string read_file(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

Status make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return Status::error(error.value(), "cannot create the directory {}: {}; give another --out", path,
                         error.message());
  }
  if (access(path.c_str(), W_OK) == 0) return {};
  return Status::error(EACCES, "cannot write into the directory {}; give another --out", path);
}

}  // namespace farside
