#include "abi/token_fd.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/os.h"

namespace farside {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr int kOwnerReads = 0400;

int seal_token(int fd, std::string_view token) {
  ssize_t written = os::write(fd, token.data(), token.size());
  if (written != static_cast<ssize_t>(token.size())) return written < 0 ? static_cast<int>(written) : -EIO;
  if (long r = os::call(SYS_fchmod, fd, kOwnerReads); r < 0) return static_cast<int>(r);
  if (int r = os::fcntl(fd, F_ADD_SEALS, kSeals); r < 0) return r;
  return os::fcntl(fd, F_SETFD, 0);
}

}  // namespace

int make_token_fd(std::string_view token) {
  int fd = os::memfd_create("farside-token", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return fd;
  fd = os::move_fd_high(fd);
  int r = seal_token(fd, token);
  if (r == 0) return fd;
  os::close(fd);
  return r;
}

int read_token_fd(int fd, char* token, size_t room) {
  if (os::fcntl(fd, F_GET_SEALS, 0) != kSeals) return -EBADF;
  long bytes = os::call(SYS_pread64, fd, token, room, 0);
  if (bytes < 0) return static_cast<int>(bytes);
  if (static_cast<size_t>(bytes) == room) return -E2BIG;
  token[bytes] = 0;
  return 0;
}

bool parse_far_file_fds(const char* token, FarFileFds* fds) {
  const char* end = token + strlen(token);
  auto file = std::from_chars(token, end, fds->file);
  if (file.ec != std::errc() || file.ptr == end || *file.ptr != ',') return false;
  auto space = std::from_chars(file.ptr + 1, end, fds->space);
  return space.ec == std::errc() && space.ptr == end && fds->file >= 0 && fds->space >= 0;
}

}  // namespace farside
