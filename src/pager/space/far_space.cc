#include "pager/space/far_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/bits.h"
#include "base/inherited_fds.h"
#include "base/log.h"
#include "base/os.h"

namespace farside::pager {
namespace {

constexpr uint64_t kFeatures = UFFD_FEATURE_PAGEFAULT_FLAG_WP;

const char* fix_for_uffd(int error) {
  return error == -EPERM || error == -EACCES
             ? "allow it with 'sysctl vm.unprivileged_userfaultfd=1' or read access to /dev/userfaultfd"
             : "run 'farside doctor' to see what this kernel lacks";
}

bool kernel_is_before_6() {
  utsname name;
  return uname(&name) == 0 && atoi(name.release) < 6;
}

}  // namespace

Result<std::unique_ptr<FarSpace>> FarSpace::reserve(uint64_t bytes, Delivery delivery) {
  constexpr uint64_t kAlignment = 2 * kMiB;
  long base = os::map_aligned(bytes, kAlignment, PROT_READ | PROT_WRITE);
  if (os::is_error(base)) {
    return Status::error(static_cast<int>(-base),
                         "cannot reserve {} bytes of addresses; lower --tune space or raise 'ulimit -v'", bytes);
  }
  std::unique_ptr<FarSpace> space(new FarSpace);
  space->base_ = reinterpret_cast<std::byte*>(base);
  space->bytes_ = bytes;
  space->old_kernel_ = kernel_is_before_6();
  space->populates_ = os::madvise(space->base_, 0, MADV_POPULATE_WRITE) == 0;
  os::madvise(space->base_, bytes, MADV_NOHUGEPAGE);
  os::madvise(space->base_, bytes, MADV_DONTDUMP);
  space->core_end_ = space->base_;
  int error = space->open(delivery);
  if (!error) error = space->watch(space->base_, bytes);
  if (error) {
    return Status::error(-error, "userfaultfd is not usable (error {}); {}", -error, fix_for_uffd(error));
  }
  space->probe_batches();
  space->open_pagemap();
  return space;
}

FarSpace::~FarSpace() {
  if (uffd_ >= 0) os::close(uffd_);
  if (pidfd_ >= 0) os::close(pidfd_);
  if (pagemap_ >= 0) os::close(pagemap_);
  if (base_) os::unmap(base_, bytes_);
}

int FarSpace::open(Delivery delivery) {
  uint64_t features = kFeatures | (delivery == Delivery::kSignal ? UFFD_FEATURE_SIGBUS : 0);
  int fd = os::open_userfaultfd(features | os::kUffdFeatureMove, nullptr);
  moves_ = fd >= 0;
  if (fd == -EINVAL) fd = os::open_userfaultfd(features, nullptr);
  if (fd < 0) return fd;
  uffd_ = os::move_fd_high(fd);
  return 0;
}

int FarSpace::watch(std::byte* address, size_t bytes) {
  int r = os::uffd_register(uffd_, address, bytes, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
  return r < 0 ? r : 0;
}

int FarSpace::adopt(std::byte* address, size_t bytes, bool replace, bool inherit_in_fork) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (replace ? MAP_FIXED : MAP_FIXED_NOREPLACE);
  long mapped = os::mmap(address, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (os::is_error(mapped)) return static_cast<int>(mapped);
  os::madvise(address, bytes, MADV_NOHUGEPAGE);
  if (!inherit_in_fork) os::madvise(address, bytes, MADV_DONTFORK);
  return watch(address, bytes);
}

void FarSpace::include_in_core(std::byte* end) {
  constexpr uint64_t kStep = 64 * kMiB;
  if (end <= core_end_ || end > base_ + bytes_) return;
  uint64_t used = align_up(static_cast<uint64_t>(end - base_), kStep);
  end = base_ + std::min(used, bytes_);
  os::madvise(core_end_, static_cast<size_t>(end - core_end_), MADV_DODUMP);
  core_end_ = end;
}

void FarSpace::probe_batches() {
  int fd = os::pidfd_open(os::getpid());
  if (fd < 0) return;
  iovec nothing_there[2] = {{base_, kPageSize}, {base_ + 2 * kPageSize, kPageSize}};
  if (os::process_madvise(fd, nothing_there, 2, MADV_DONTNEED) == 2 * static_cast<long>(kPageSize)) {
    pidfd_ = os::move_fd_high(fd);
  } else {
    os::close(fd);
  }
}

void FarSpace::open_pagemap() {
  int fd = moves_ ? os::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  if (os::is_huge_mapped(fd, base_, kPageSize) == 0) pagemap_ = os::move_fd_high(fd);
  else os::close(fd);
}

// EAGAIN: the kernel holds the lock of a page for a moment.
// Linux 6.17 and later move pages of a split huge page in batches, and forget a batch if they had to repeat a step
// before: move_pages() keeps the old error, repeats the batch, finds it mapped already, and returns -EEXIST or too few
// bytes. What arrived is looked up, therefore.
long FarSpace::move(std::byte* to, std::byte* from, size_t bytes) {
  constexpr int kTries = 100;
  long r = -EAGAIN;
  for (int i = 0; i < kTries && (r == -EAGAIN || r == -EINTR); i++) r = os::uffd_move(uffd_, to, from, bytes);
  if (r == static_cast<long>(bytes)) return r;
  auto arrived = static_cast<long>(present_bytes(to, bytes));
  return arrived > 0 ? arrived : r;
}

size_t FarSpace::present_bytes(const std::byte* address, size_t bytes) const {
  constexpr size_t kPagesAtOnce = 64;
  constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62;
  uint64_t entries[kPagesAtOnce];
  size_t pages = bytes / kPageSize;
  for (size_t page = 0; page < pages; page++) {
    size_t at = page % kPagesAtOnce;
    if (at == 0) {
      size_t size = std::min(kPagesAtOnce, pages - page) * sizeof(uint64_t);
      auto offset = (reinterpret_cast<uintptr_t>(address) / kPageSize + page) * sizeof(uint64_t);
      long got = os::call(SYS_pread64, pagemap_, entries, size, offset);
      if (got != static_cast<long>(size)) die("internal error: cannot read the page map (error {})", -got);
    }
    if ((entries[at] & (kPresent | kSwapped)) == 0) return page * kPageSize;
  }
  return bytes;
}

int FarSpace::map(std::byte* to, const void* from, size_t bytes, bool write_protect) {
  auto* source = static_cast<const std::byte*>(from);
  size_t done = 0;
  while (done < bytes) {
    long r = os::uffd_copy(uffd_, to + done, source + done, bytes - done, write_protect ? UFFDIO_COPY_MODE_WP : 0);
    if (r > 0) done += static_cast<size_t>(r);
    else if (r == -EEXIST) done += kPageSize;
    else if (r != -EAGAIN && r != 0) return static_cast<int>(r);
  }
  return 0;
}

int FarSpace::write_protect(std::byte* address, size_t bytes, bool protect) {
  int r;
  do {
    r = os::uffd_write_protect(uffd_, address, bytes, protect);
  } while (r == -EAGAIN || r == -EINTR);
  return r;
}

int FarSpace::unmap(std::span<const PageRun> runs) {
  static_assert(sizeof(PageRun) == sizeof(iovec));
  if (pidfd_ >= 0 && runs.size() > 1) {
    size_t total = 0;
    for (const PageRun& r : runs) total += r.bytes;
    long done = os::process_madvise(pidfd_, reinterpret_cast<const iovec*>(runs.data()), runs.size(), MADV_DONTNEED);
    if (done == static_cast<long>(total)) return 0;
  }
  for (const PageRun& r : runs) {
    int error = os::madvise(r.address, r.bytes, MADV_DONTNEED);
    // EAGAIN: the kernel was short of memory for a moment. Dropping an owned page twice is harmless.
    while (error == -EAGAIN || error == -EINTR) error = os::madvise(r.address, r.bytes, MADV_DONTNEED);
    if (error < 0) return error;
  }
  return 0;
}

int FarSpace::make_own(std::byte* pages, size_t bytes) {
  int r;
  do {
    r = os::madvise(pages, bytes, MADV_POPULATE_WRITE);
  } while (r == -EAGAIN || r == -EINTR);
  if (populates_) return r;
  // Kernels before 5.14 cannot populate. A write that changes nothing has the same effect if the program's protection
  // allows writing.
  for (size_t at = 0; at < bytes; at += kPageSize) {
    reinterpret_cast<std::atomic<uint32_t>*>(pages + at)->fetch_or(0);
  }
  return 0;
}

int FarSpace::wake(std::byte* address, size_t bytes) { return os::uffd_wake(uffd_, address, bytes); }

int FarSpace::open_in_child() {
  close_inherited(uffd_);
  bool batches = pidfd_ >= 0;
  if (batches) close_inherited(pidfd_);
  if (pagemap_ >= 0) close_inherited(pagemap_);
  pidfd_ = pagemap_ = -1;
  if (int error = open(Delivery::kSignal)) return error;
  if (batches) {
    int fd = os::pidfd_open(os::getpid());
    if (fd >= 0) pidfd_ = os::move_fd_high(fd);
  }
  open_pagemap();
  return 0;
}

}  // namespace farside::pager
