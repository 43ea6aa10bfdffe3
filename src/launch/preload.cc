#include "launch/preload.h"

#include <unistd.h>

#include "launch/installation.h"

namespace farside {

Result<std::string> find_preload_library() {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  std::string library = installation->preload_library();
  if (access(library.c_str(), R_OK) == 0) return library;
  return Status::error(ENOENT, "{} is missing; install Farside again", library);
}

Result<std::string> preload_list(const char* present, const std::string& library) {
  if (library.find_first_of(" :") != library.npos) {
    return Status::error(EINVAL, "{}: LD_PRELOAD accepts no path with a space or colon; install Farside elsewhere",
                         library);
  }
  if (!present || !*present) return library;
  return fmt::format("{}:{}", present, library);
}

}  // namespace farside
