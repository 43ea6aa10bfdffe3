#include "abi/run_block.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"

namespace farside {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr int kOwnerReads = 0400;

int seal_block(int fd, const RunBlock& block) {
  ssize_t written = os::write(fd, &block, sizeof block);
  if (written != static_cast<ssize_t>(sizeof block)) return written < 0 ? static_cast<int>(written) : -EIO;
  if (long r = os::call(SYS_fchmod, fd, kOwnerReads); r < 0) return static_cast<int>(r);
  if (int r = os::fcntl(fd, F_ADD_SEALS, kSeals); r < 0) return r;
  return os::fcntl(fd, F_SETFD, 0);
}

bool read_at(int fd, uint64_t offset, void* to, size_t bytes) {
  return os::call(SYS_pread64, fd, to, bytes, offset) == static_cast<long>(bytes);
}

}  // namespace

int make_run_fd(const Options& options) {
  int fd = os::memfd_create("farside-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return fd;
  fd = os::move_fd_high(fd);
  RunBlock block;
  block.options = options;
  block.ticks_per_us = ticks_per_us();
  int r = seal_block(fd, block);
  if (r == 0) return fd;
  os::close(fd);
  return r;
}

int read_run_fd(int fd, Options* options) {
  struct {
    uint64_t magic;
    uint32_t version, bytes;
    double ticks_per_us;
  } head;
  static_assert(sizeof head == offsetof(RunBlock, options));
  // The guard hides the descriptor from fcntl in a program of the run, which may be farside itself.
  if (!read_at(fd, 0, &head, sizeof head) || head.magic != RunBlock::kMagic) return -EBADF;
  if (head.version != RunBlock::kVersion || head.bytes != sizeof(RunBlock)) return -EPROTO;
  set_ticks_per_us(head.ticks_per_us);
  return read_at(fd, sizeof head, options, sizeof *options) ? 0 : -EPROTO;
}

int run_fd_in(const char* const* environment) {
  constexpr size_t kLength = sizeof kRunVariable - 1;
  for (; environment && *environment; environment++) {
    const char* entry = *environment;
    if (strncmp(entry, kRunVariable, kLength) != 0 || entry[kLength] != '=') continue;
    int fd = -1;
    const char *begin = entry + kLength + 1, *end = begin + strlen(begin);
    auto [parsed, error] = std::from_chars(begin, end, fd);
    return error == std::errc() && parsed == end ? fd : -1;
  }
  return -1;
}

bool parse_far_file_fds(const char* token, FarFileFds* fds) {
  FarFileFds found;
  const char* end = token + strlen(token);
  auto file = std::from_chars(token, end, found.file);
  if (file.ec != std::errc() || file.ptr == end || *file.ptr != ',') return false;
  auto space = std::from_chars(file.ptr + 1, end, found.space);
  if (space.ec != std::errc() || space.ptr != end || found.file < 0 || found.space < 0) return false;
  *fds = found;
  return true;
}

}  // namespace farside
