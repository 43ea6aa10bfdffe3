#include "launch/preload.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "abi/run_block.h"
#include "abi/static_tls.h"
#include "launch/installation.h"

namespace farside {

Result<std::string> find_preload_library() {
  Result<Installation> installation = find_installation();
  if (!installation.ok()) return installation.status();
  std::string library = installation->preload_library();
  if (access(library.c_str(), R_OK) == 0) return library;
  return Status::error(ENOENT, "{} is missing; install Farside again", library);
}

namespace {

Status name_in_environment(const Options& options) {
  int fd = make_run_fd(options);
  if (fd < 0) return Status::error(-fd, "no descriptor for the options of the run (memfd_create: {})", strerror(-fd));
  setenv(kRunVariable, std::to_string(fd).c_str(), 1);
  return {};
}

}  // namespace

Status hand_over(const Options& options) {
  for (const OptionRow& row : option_rows()) unsetenv(std::string(row.variable).c_str());
  return name_in_environment(options);
}

Status hand_over_token(std::string_view token) {
  Options options;
  Status copied = copy_text(token, options.token, "the token");
  return copied.ok() ? name_in_environment(options) : copied;
}

Result<std::string> preload_list(const char* present, const std::string& library) {
  if (library.find_first_of(" :") != library.npos) {
    return Status::error(EINVAL, "{}: LD_PRELOAD accepts no path with a space or colon; install Farside elsewhere",
                         library);
  }
  if (!present || !*present) return library;
  return fmt::format("{}:{}", present, library);
}

std::string tunables_for_audit(const char* present) {
  std::string text(room_for_tunables(present), 0);
  text.resize(static_cast<size_t>(write_tunables(text.data(), present) - text.data()));
  return text;
}

}  // namespace farside
