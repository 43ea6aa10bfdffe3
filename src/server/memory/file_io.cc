#include "server/memory/file_io.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace farside::server {

int read_file(int fd, uint64_t offset, void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    ssize_t n = pread(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? -errno : -EIO;
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

int write_file(int fd, uint64_t offset, const void* from, size_t bytes) {
  auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    ssize_t n = pwrite(fd, at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

uint64_t file_memory(int fd) {
  struct stat info;
  return fstat(fd, &info) < 0 ? 0 : static_cast<uint64_t>(info.st_blocks) * 512;
}

}  // namespace farside::server
