// What all threads of a stress run share: the pager, the commons, the quiet lock, and how a failure is told.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "pager/pager.h"
#include "settings.h"

namespace farside::stress {

class Worker;

// Pages that every worker writes to, each in its own stripe of every page, so that they fault on the same pages at the
// same time and yet each knows what its bytes must be. The first 64 bytes of a page belong to nobody.
struct Commons {
  static constexpr size_t kHead = 64;
  static constexpr unsigned kStripes = 8;
  static constexpr size_t kStripe = 504;
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
  Commons commons;
  std::vector<Worker*> workers;
  std::atomic<bool> stop{false};
  bool in_child = false;

  // Shuts every worker but `self` out of its next operation, so that far memory and all shadows agree. False: somebody
  // else is doing so.
  bool begin_quiet(Worker& self);
  void end_quiet();
  std::atomic<bool> quiet{false};

  // Tells where far memory differs from its shadow, and ends the process with status 1.
  void compare(const std::byte* far, const std::byte* shadow, size_t bytes, const char* what);
  [[noreturn]] void fail(const char* what, const std::byte* far = nullptr, const std::byte* shadow = nullptr);
  // No progress: tells every page that is on the move, and aborts for a core file.
  [[noreturn]] void abort_stuck();
};

// The words of the pager's table, which the facade does not offer to programs.
pager::PageWord word_at(pager::Pager& pager, pager::PageIndex page);

}  // namespace farside::stress
