// State that all threads of a stress run share: the pager, the shared pages, the lock that stops all workers, and
// reports of failures.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "base/inject.h"
#include "base/sync.h"
#include "pager/pager.h"
#include "settings.h"

namespace farside::stress {

class StressWorker;

// A sanitizer's runtime does not lock its allocator over a fork, as libc does. If another thread holds that lock, a
// child that allocates waits for ever. See docs/internals/testing.md.
constexpr bool kForkLocksAllocator = !kSanitized;

// Pages to which all workers write, each in its own stripe of every page. They thus fault on the same pages at the same
// time, and yet each worker's bytes are determined. The first 64 bytes of a page are unused.
struct SharedPages {
  static constexpr size_t kHead = 64;
  static constexpr unsigned kStripes = 8;
  static constexpr size_t kStripe = 504;
  static constexpr size_t kHot = 32;  // the first pages, which are used most
  static_assert(kHead + kStripes * kStripe == kPageSize);
  std::byte* far = nullptr;
  size_t pages = 0;
  std::byte* at(size_t page, unsigned stripe) const { return far + page * kPageSize + kHead + stripe * kStripe; }
};

class World {
 public:
  World(const Settings& s, pager::Pager& p) : settings(s), pager(p) {}

  const Settings settings;
  pager::Pager& pager;
  SharedPages shared_pages;
  std::vector<StressWorker*> workers;
  std::atomic<bool> stop{false};
  bool in_child = false;

  // Keeps all workers except `self` from starting an operation and waits until none is in one. Far memory then agrees
  // with all shadow copies. Holds `starting` if a child's allocator depends on it. False: another worker has done so.
  bool begin_quiet(StressWorker& self);
  void end_quiet();
  std::atomic<bool> quiet{false};
  Mutex starting;  // held while a worker's thread starts or ends, which allocates memory

  // Reports the first difference between far memory and its shadow copy, and ends the process with status 1.
  void compare(const std::byte* far, const std::byte* shadow, size_t bytes, const char* what);
  // As compare, for a copy of what the server has for `far`.
  void compare_on_server(const std::byte* copy, const std::byte* far, const std::byte* shadow, size_t bytes);
  [[noreturn]] void fail(const char* what, const std::byte* far = nullptr, const std::byte* shadow = nullptr);
  // No progress: reports every page that is owned or pinned, and aborts to leave a core file.
  [[noreturn]] void abort_stuck();
};

// The word of a page in the pager's table, which the pager's interface does not expose.
pager::PageWord word_at(pager::Pager& pager, pager::PageIndex page);

}  // namespace farside::stress
