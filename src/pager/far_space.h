// The reserved range of addresses that pages come into and leave, and the userfaultfd that watches it. Thin: knows
// mapping, unmapping and protecting, not states. All functions return 0 or -errno and are async-signal-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bits.h"
#include "base/near.h"
#include "base/status.h"

namespace farside::pager {

enum class Delivery { kSignal, kMessages };  // how the kernel reports faults: SIGBUS to the thread, or uffd messages

struct PageRun {
  std::byte* address;
  size_t bytes;
};

// Adds a page to a list of runs: to the last one where it follows it, else as a new run, for which there must be room.
// Returns the number of runs.
inline size_t append_page(PageRun* runs, size_t count, std::byte* page) {
  if (count > 0 && runs[count - 1].address + runs[count - 1].bytes == page) {
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

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  int uffd() const { return uffd_; }

  // Maps pages with the content at `from`. Protected pages report their first write. Goes on after EAGAIN. Pages that
  // are present already are left as they are.
  int map(std::byte* to, const void* from, size_t bytes, bool write_protect);
  int write_protect(std::byte* address, size_t bytes, bool protect);
  // Drops the pages: one TLB shootdown for all runs where the kernel can (6.16 and later).
  int unmap(std::span<const PageRun> runs);
  int wake(std::byte* address, size_t bytes);
  // Makes this process's mapping of a present, unprotected page writable at once, on a frame of its own. An
  // error where the program's protection forbids writing.
  int make_own(std::byte* page);
  // Kernels before 6.0 may map a page read-only after its protection was lifted, and then copy it on the first write
  // although nobody shares it: there every such page needs make_own().
  bool shares_unprotected_frames() const { return old_kernel_; }
  bool unmaps_in_batches() const { return pidfd_ >= 0; }

  void inherit_in_fork(bool inherit);

  // In the child of a fork: watch the inherited range with a userfaultfd of its own, by signal. The kernel dropped the
  // protection of all present pages with the old registration; the pager protects them again.
  int adopt_in_child();

  bool owns_fd(int fd) const { return fd == uffd_ || (fd == pidfd_ && fd >= 0); }

 private:
  int watch(Delivery delivery);
  void probe_batches();

  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  int uffd_ = -1;
  bool old_kernel_ = false;
  bool populates_ = false;  // MADV_POPULATE_WRITE, from 5.14
  int pidfd_ = -1;          // of this process; -1 where unmapping in batches does not work
};

}  // namespace farside::pager
