// Wrappers of posix_spawn. Until its exec, the child runs in this process's memory without Farside's handlers. All that
// it reads is near: path, arguments and environment are copied, and file actions are allocated near when they are
// created.
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "preload/guard/calls/exec.h"
#include "preload/guard/libc/wrapper.h"
#include "preload/guard/process/process.h"
#include "preload/guard/process/program_start.h"
#include "preload/guard/thread/guard_thread.h"
#include "preload/guard/thread/pins.h"
#include "preload/heap/far_heap.h"

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

namespace {

// 0, or why the kernel would not execute the file.
int execution_error(const char* path) {
  struct stat info;
  if (eaccess(path, X_OK) != 0) return errno;
  return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? 0 : EACCES;
}

// Searches PATH for the program, as the child would. `found` is of PATH_MAX bytes. The error: ENOENT or EACCES.
int find_in_path(const char* file, char* found) {
  int error = ENOENT;
  const char* path = getenv("PATH");
  if (!path) path = "/bin:/usr/bin";
  for (bool more = *file != 0; more;) {
    size_t length = strcspn(path, ":");
    if (length + strlen(file) + 2 < PATH_MAX) {
      auto* end = static_cast<char*>(mempcpy(found, path, length));
      strcpy(length > 0 ? stpcpy(end, "/") : end, file);
      int refused = execution_error(found);
      if (refused == 0) return 0;
      if (refused == EACCES) error = EACCES;
    }
    more = path[length] == ':';
    path += length + 1;
  }
  return error;
}

int spawn_near(decltype(posix_spawn)* real, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  NearStart start(path, arguments, environment);
  posix_spawn_file_actions_t near_actions;
  posix_spawnattr_t near_attributes;
  if (actions) near_actions = *actions;
  if (attributes) near_attributes = *attributes;
  pid_t child = 0;
  int error;
  {
    Unguarded pass;
    pass_run_fds(start.gets_run_fds());
    error = real(&child, start.path(), actions ? &near_actions : nullptr, attributes ? &near_attributes : nullptr,
                 start.arguments(), start.environment());
    pass_run_fds(true);
  }
  if (error == 0) start.note();
  if (pid && error == 0) *pid = child;
  return error;
}

}  // namespace

EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                       const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  static const auto real = libc_function<decltype(posix_spawn)>("posix_spawn");
  if (!guard_pager() || !are_readable(path, arguments, environment))
    return real(pid, path, actions, attributes, arguments, environment);
  return spawn_near(real, pid, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                        const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  static const auto real = libc_function<decltype(posix_spawnp)>("posix_spawnp");
  if (!guard_pager()) return real(pid, file, actions, attributes, arguments, environment);
  char found[PATH_MAX];
  bool is_path = strchr(file, '/') != nullptr;
  int error = is_path ? 0 : find_in_path(file, found);
  return error ? error : spawn_near(real, pid, is_path ? file : found, actions, attributes, arguments, environment);
}

#define NEAR_FILE_ACTION(name, parameters, arguments)              \
  EXPORT int name parameters {                                     \
    static const auto real = libc_function<decltype(name)>(#name); \
    NearScope near;                                                \
    return real arguments;                                         \
  }
NEAR_FILE_ACTION(posix_spawn_file_actions_addopen,
                 (posix_spawn_file_actions_t * a, int fd, const char* path, int flags, mode_t mode),
                 (a, fd, path, flags, mode))
NEAR_FILE_ACTION(posix_spawn_file_actions_addclose, (posix_spawn_file_actions_t * a, int fd), (a, fd))
NEAR_FILE_ACTION(posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t * a, int fd, int to), (a, fd, to))
NEAR_FILE_ACTION(posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t * a, const char* path), (a, path))
NEAR_FILE_ACTION(posix_spawn_file_actions_addfchdir_np, (posix_spawn_file_actions_t * a, int fd), (a, fd))
NEAR_FILE_ACTION(posix_spawn_file_actions_addclosefrom_np, (posix_spawn_file_actions_t * a, int fd), (a, fd))
