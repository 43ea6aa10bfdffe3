#include "server/memory/overflow_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/os.h"
#include "base/private_file.h"
#include "server/memory/file_io.h"
#include "wire/crc32c.h"

namespace farside::server {

Result<std::unique_ptr<OverflowFile>> OverflowFile::create(const std::string& path, uint64_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)  // else a signal would end the server
    return Status::error(EFBIG, "cannot allocate the overflow file {}: raise the limit of files' sizes (ulimit -f)",
                         path);
  bool bypasses_cache = false;
  int fd = open_private_file(path.c_str(), &bypasses_cache);
  if (fd < 0) return Status::error(-fd, "cannot create the overflow file {}: {}", path, strerror(-fd));
  std::unique_ptr<OverflowFile> file(new OverflowFile(path, fd, bytes / kSlotBytes, bypasses_cache));
  int r = os::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  if (r < 0) return Status::error(-r, "cannot allocate the overflow file {}: {}", path, strerror(-r));
  if (!bypasses_cache)
    log(LogLevel::kWarning,
        "the file system of {} has no direct I/O: pages in the overflow file take RAM in its cache, too; use a file "
        "system on a disk",
        path);
  return file;
}

OverflowFile::OverflowFile(std::string path, int fd, uint64_t slots, bool is_direct)
    : path_(std::move(path)),
      fd_(fd),
      slots_(slots),
      is_direct_(is_direct),
      checksums_(std::make_unique<std::atomic<uint32_t>[]>(slots)),
      free_(slots) {
  for (uint64_t slot = 0; slot < slots; slot++) free_.set(slot);
}

OverflowFile::~OverflowFile() { os::close(fd_); }

OverflowFile::Run OverflowFile::take(size_t wanted) {
  LockGuard hold(mutex_);
  if (failed_ || free_.count() == 0) return {};
  Run run = {free_.next(next_), 0};
  if (run.first == PageBitmap::kNone) run.first = free_.next(0);
  next_ = run.first;
  for (; run.count < std::min(wanted, kMaxRun) && next_ < slots_ && free_.test(next_); run.count++)
    free_.reset(next_++);
  used_ += run.count;
  return run;
}

void OverflowFile::release(uint64_t slot) {
  LockGuard hold(mutex_);
  FARSIDE_CHECK(!free_.test(slot));
  free_.set(slot);
  used_--;
}

int OverflowFile::write(Run run, const std::byte* pages) {
  for (size_t i = 0; i < run.count; i++)
    checksums_[run.first + i] = wire::crc32c(0, pages + i * kSlotBytes, kSlotBytes);
  int r = write_file(fd_, run.first * kSlotBytes, pages, run.count * kSlotBytes);
  if (r == 0 && !is_direct_ && fdatasync(fd_) != 0) r = -errno;
  return r == 0 ? 0 : fail(r);
}

void OverflowFile::warn_if_nearly_full() {
  if (used_bytes() < bytes() / 10 * 9 || warned_.exchange(true)) return;
  log(LogLevel::kWarning,
      "90% of the overflow file {} is in use, and soon the server is full; raise the size in --overflow, or --memory",
      path_);
}

int OverflowFile::fail(int error) {
  if (!failed_.exchange(true))
    log(LogLevel::kError,
        "cannot write the overflow file {}: {}; pages that are not in it stay in RAM, and the server lends no more "
        "than "
        "both have now",
        path_, strerror(-error));
  return error;
}

int OverflowFile::read(uint64_t slot, std::byte* page) const {
  alignas(kSlotBytes) std::byte content[kSlotBytes];
  if (slot >= slots_) return -EIO;
  if (int r = read_file(fd_, slot * kSlotBytes, content, sizeof content); r < 0) return r;
  if (wire::crc32c(0, content, sizeof content) != checksums_[slot]) return -EIO;
  memcpy(page, content, sizeof content);
  return 0;
}

}  // namespace farside::server
