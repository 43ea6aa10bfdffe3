#include "base/private_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>

namespace farside {
namespace {

bool is_in_ram(int fd) {
  struct statfs system = {};
  return fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

}  // namespace

int open_private_file(const char* path, bool* bypasses_cache) {
  struct stat info = {};
  bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
  int flags = O_RDWR | O_CLOEXEC | (is_folder ? O_TMPFILE : O_CREAT | O_EXCL | O_NOFOLLOW);
  int fd = open(path, flags | O_DIRECT, 0600);
  bool direct = fd >= 0;
  if (fd < 0 && errno == EINVAL) {
    if (!is_folder) unlink(path);  // it was created before the file system refused direct I/O
    fd = open(path, flags, 0600);
  }
  if (fd < 0) return -errno;
  if (!is_folder && unlink(path) != 0) {
    int error = errno;
    close(fd);
    return -error;
  }
  fchmod(fd, 0600);
  *bypasses_cache = direct && !is_in_ram(fd);
  return fd;
}

}  // namespace farside
