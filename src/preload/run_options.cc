#include "preload/run_options.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "abi/run_block.h"
#include "base/os.h"
#include "preload/guard/process/process.h"

namespace farside::preload {
namespace {

int g_run_fd = -1;
FarFileFds g_far_file;  // in runs with a far file

// Descriptors are closed between a posix_spawn, or a fork in handler mode, and the exec, where nothing is trapped. The
// parent has the block still, under the same number.
int read_from_parent(int fd, Options* options) {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/fd/{}", os::call(SYS_getppid), fd).out = 0;
  int opened = os::open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0) return opened;
  int r = read_run_fd(opened, options);
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

Status take_options(int fd, Options* options) {
  int r = read_run_fd(fd, options);
  if (r == -EPROTO)
    return Status::error(EPROTO, "this run was started by another version of Farside; start all of it with one");
  if (r < 0) r = read_from_parent(fd, options);
  if (r < 0 || !take_far_file(options->token))
    return Status::error(EBADF, "descriptor {}, which had the options of this run, was closed", fd);
  g_run_fd = fd;
  return {};
}

bool owns_run_fd(int fd) { return fd >= 0 && fd == g_run_fd; }

int run_fd() { return g_run_fd; }

void pass_run_fds(bool pass) {
  for (int fd : {g_run_fd, g_far_file.file, g_far_file.space}) {
    if (fd >= 0) os::fcntl(fd, F_SETFD, pass ? 0 : FD_CLOEXEC);
  }
}

}  // namespace farside::preload
