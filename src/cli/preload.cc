#include "cli/preload.h"

#include <unistd.h>

#include <filesystem>

namespace farside::cli {

Result<std::string> find_preload_library() {
  std::error_code error;
  std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::error(error.value(), "cannot read /proc/self/exe: {}; is /proc mounted?", error.message());
  std::filesystem::path up = executable.parent_path().parent_path();
  for (const char* place : {"lib/farside", "heap"}) {
    std::filesystem::path library = up / place / "libfarside_preload.so";
    if (access(library.c_str(), R_OK) == 0) return library.string();
  }
  return Status::error(ENOENT,
                       "libfarside_preload.so is neither in {0}/lib/farside nor in {0}/heap; install Farside again",
                       up.string());
}

Result<std::string> preload_list(const char* present, const std::string& library) {
  if (library.find_first_of(" :") != library.npos) {
    return Status::error(
        EINVAL, "{}: the dynamic linker takes no path with a space or colon; install Farside elsewhere", library);
  }
  if (!present || !*present) return library;
  return fmt::format("{}:{}", present, library);
}

}  // namespace farside::cli
