#include "preload/token.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "abi/token_fd.h"
#include "base/os.h"
#include "preload/guard/process.h"

namespace farside::preload {
namespace {

int g_token_fd = -1;
FarFileFds g_far_file;  // in runs with a far file

// Descriptors are closed between a posix_spawn, or a fork in handler mode, and the exec, where nothing is trapped. The
// parent has the token still, under the same number.
int read_from_parent(int fd, char* token, size_t room) {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/fd/{}", os::call(SYS_getppid), fd).out = 0;
  int opened = os::open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return opened;
  int r = read_token_fd(opened, token, room);
  bool is_free = os::fcntl(fd, F_GETFD, 0) == -EBADF;
  if (r == 0 && is_free) os::call(SYS_dup3, opened, fd, 0);
  os::close(opened);
  return r;
}

bool is_open(int fd) { return os::fcntl(fd, F_GETFD, 0) >= 0; }

// As above.
bool open_as_parent(int fd, int flags) {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/fd/{}", os::call(SYS_getppid), fd).out = 0;
  int opened = is_open(fd) ? -1 : os::open(path, O_RDWR | O_CLOEXEC | flags);
  if (opened >= 0) os::call(SYS_dup3, opened, fd, 0);
  if (opened >= 0) os::close(opened);
  return is_open(fd);
}

bool take_far_file(const char* token) {
  if (!parse_far_file_fds(token, &g_far_file)) return true;
  bool is_there = open_as_parent(g_far_file.file, O_DIRECT) || open_as_parent(g_far_file.file, 0);
  return is_there && open_as_parent(g_far_file.space, 0);
}

}  // namespace

Status take_token(Options* options) {
  int fd = options->token_fd;
  if (fd < 0) return {};
  int r = read_token_fd(fd, options->token, sizeof options->token);
  if (r < 0) r = read_from_parent(fd, options->token, sizeof options->token);
  if (r < 0 || !take_far_file(options->token))
    return Status::error(EBADF, "descriptor {}, which had the token of this run, was closed", fd);
  g_token_fd = fd;
  return {};
}

bool owns_token_fd(int fd) { return fd >= 0 && fd == g_token_fd; }

int token_fd() { return g_token_fd; }

void pass_token(bool pass) {
  for (int fd : {g_token_fd, g_far_file.file, g_far_file.space}) {
    if (fd >= 0) os::fcntl(fd, F_SETFD, pass ? 0 : FD_CLOEXEC);
  }
}

}  // namespace farside::preload
