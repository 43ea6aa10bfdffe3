// The reserved range of addresses and the userfaultfd that watches it. This layer maps, unmaps and protects pages; it
// does not use page states. Unless they return a Status or Result, functions return 0 or -errno and are
// async-signal-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bits.h"
#include "base/near.h"
#include "base/os.h"
#include "base/status.h"

namespace farside::pager {

enum class Delivery { kSignal, kMessages };  // how the kernel reports faults: SIGBUS to the thread, or uffd messages

struct PageRun {
  std::byte* address;
  size_t bytes;
};

// Adds a page to a list of runs: extends the last run if the page follows it, else adds a run, for which there must be
// room. Returns the number of runs. A run lies in one window of 2 MiB, so that its page numbers follow each other.
inline size_t append_page(PageRun* runs, size_t count, std::byte* page) {
  bool begins_window = is_aligned(reinterpret_cast<uint64_t>(page), 2 * kMiB);
  if (count > 0 && !begins_window && runs[count - 1].address + runs[count - 1].bytes == page) {
    runs[count - 1].bytes += kPageSize;
    return count;
  }
  runs[count] = {page, kPageSize};
  return count + 1;
}

class FarSpace : public NearObject {
 public:
  static Result<std::unique_ptr<FarSpace>> reserve(uint64_t bytes, Delivery delivery);
  ~FarSpace();

  // Aligned to 2 MiB.
  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  int uffd() const { return uffd_; }

  // Maps pages with the content at `from`; write-protected pages report their first write. Retries on EAGAIN. Pages
  // that are present already are left as they are.
  int map(std::byte* to, const void* from, size_t bytes, bool write_protect);
  int write_protect(std::byte* address, size_t bytes, bool protect);
  // Drops the pages: one TLB shootdown for all runs where the kernel can do so (6.16 and later).
  int unmap(std::span<const PageRun> runs);
  int wake(std::byte* address, size_t bytes);

  // Huge frames. False where the kernel cannot move them or cannot tell them apart.
  bool moves_frames() const { return moves_ && pagemap_ >= 0; }
  // Moves present pages to `to`, where none are. The caller owns both ranges. Retries while the kernel is busy with a
  // page. Returns how many bytes were moved, from the first, or an error if none.
  long move(std::byte* to, std::byte* from, size_t bytes);
  // Whether the range is mapped by huge pages only.
  bool is_huge(const std::byte* address, size_t bytes) const {
    return os::is_huge_mapped(pagemap_, address, bytes) == 1;
  }
  // Makes this process's mapping of present, unprotected pages writable at once, on frames that no other process
  // shares. Fails where the program's protection forbids writing.
  int make_own(std::byte* pages, size_t bytes = kPageSize);
  // Kernels before 6.0 may map a page read-only after its protection was lifted, and then copy it on the first write
  // although no process shares it. There make_own() is necessary for every such page.
  bool shares_unprotected_frames() const { return old_kernel_; }
  bool unmaps_in_batches() const { return pidfd_ >= 0; }

  // Maps fresh memory at [address, address + bytes), and watches it as well. The range may lie outside of the reserved
  // one. replace: in place of what is mapped there; else EEXIST.
  int adopt(std::byte* address, size_t bytes, bool replace, bool inherit_in_fork);

  // The far space as far as `end` is part of core dumps; what was never committed is not. A core of all of it would
  // have the size of --tune space, with zeros that a dump into a pipe writes out. Callers exclude each other.
  void include_in_core(std::byte* end);

  // In the child of a fork: opens a userfaultfd of the child, in signal delivery. The kernel dropped the registration
  // of the inherited ranges, and the protection of all present pages with it: watch() registers a range again, and the
  // pager protects the pages.
  int open_in_child();
  int watch(std::byte* address, size_t bytes);

  bool owns_fd(int fd) const { return fd >= 0 && (fd == uffd_ || fd == pidfd_ || fd == pagemap_); }

 private:
  int open(Delivery delivery);
  void probe_batches();
  void open_pagemap();
  // How many bytes have pages, from the first.
  size_t present_bytes(const std::byte* address, size_t bytes) const;

  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  std::byte* core_end_ = nullptr;
  int uffd_ = -1;
  bool old_kernel_ = false;
  bool populates_ = false;  // the kernel has MADV_POPULATE_WRITE (5.14)
  int pidfd_ = -1;          // of this process; -1 where one call cannot unmap several runs
  bool moves_ = false;      // the kernel has UFFDIO_MOVE
  int pagemap_ = -1;        // /proc/self/pagemap, if it tells huge pages apart
};

}  // namespace farside::pager
