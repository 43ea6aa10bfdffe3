#include "launch/preload.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "abi/token_fd.h"
#include "launch/installation.h"

namespace farside {

Result<std::string> find_preload_library() {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  std::string library = installation->preload_library();
  if (access(library.c_str(), R_OK) == 0) return library;
  return Status::error(ENOENT, "{} is missing; install Farside again", library);
}

Status hand_over_token(std::string_view token) {
  unsetenv("FARSIDE_TOKEN_FD");
  if (token.empty()) return {};
  int fd = make_token_fd(token);
  if (fd < 0) return Status::error(-fd, "no descriptor for the token (memfd_create: {})", strerror(-fd));
  setenv("FARSIDE_TOKEN_FD", std::to_string(fd).c_str(), 1);
  return {};
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
