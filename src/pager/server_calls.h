// Calls of functions on memory servers (docs/internals/offload.md): what pages a call needs, and that the servers have
// them while it runs. Ordinary code with signals blocked. Thread-safe.
#pragma once
#include <span>

#include "pager/range/range_ops.h"

namespace farside::pager {

// Whole pages of the far space; those of one call are in the order of their addresses.
struct CallRange {
  std::byte* address;
  size_t bytes;
  bool written;
};

// What a call would have to do, from up to 64 pages of each range.
struct CallShare {
  uint64_t pages = 0, far = 0, dirty = 0;
};

class ServerCalls {
 public:
  ServerCalls(PageTable& table, RangeOps& ranges) : table_(table), ranges_(ranges) {}

  CallShare share_of(std::span<const CallRange> ranges);
  // Brings the ranges to the servers: near changes are written back, and of written ranges no page is near, nor becomes
  // near, before end(). One call with written ranges at a time, and no fork meanwhile; other calls of this function
  // and forks wait. -EFAULT: a page belongs to no allocation, or the program may not access it.
  // Not analyzed: the lock is held between the two, and only if something is written.
  int begin(std::span<const CallRange> ranges) NO_THREAD_SAFETY_ANALYSIS;
  void end(std::span<const CallRange> ranges) NO_THREAD_SAFETY_ANALYSIS;

  // No call with written ranges meanwhile.
  void lock_for_fork() ACQUIRE(written_mutex_) { written_mutex_.lock(); }
  void unlock_after_fork() RELEASE(written_mutex_) { written_mutex_.unlock(); }

 private:
  bool take(PageIndex first, uint64_t count);
  void take_back(std::span<const CallRange> ranges);
  PageIndex first_of(const CallRange& range) const;

  PageTable& table_;
  RangeOps& ranges_;
  Mutex written_mutex_;  // held during a call with written ranges, and during a fork
};

}  // namespace farside::pager
