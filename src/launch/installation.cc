#include "launch/installation.h"

#include <filesystem>

namespace farside {

Result<Installation> find_installation() {
  std::error_code error;
  std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Status::error(error.value(), "cannot read /proc/self/exe: {}; is /proc mounted?", error.message());
  for (std::filesystem::path at = executable.parent_path(); at != at.root_path(); at = at.parent_path()) {
    if (std::filesystem::exists(at / "lib/farside", error)) return Installation{at.string()};
  }
  return Status::error(ENOENT, "no folder above {} has lib/farside; install Farside again", executable.string());
}

}  // namespace farside
