// Pins: far memory that stays near while the kernel accesses it for a system call, or near memory that stands in for
// it.
//
// Async-signal-safe. A system call may be interrupted by the program's signal handlers, which may make others or leave
// it by longjmp. Therefore each pin is recorded with the program's stack pointer, so that the pins of frames that were
// left are found and released.
#pragma once
#include <sys/uio.h>

#include <cstdint>

#include "pager/pager.h"
#include "preload/guard/thread/guard_thread.h"

namespace farside::preload {

// Pins far memory while the object exists. Addresses that are not far cost one comparison.
class Pins {
 public:
  explicit Pins(uint64_t stack_pointer);
  ~Pins();
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  // Pins the part of [address, address + bytes) that is in far space. False if some of it is not mapped: the system
  // call will then return EFAULT, as it would natively.
  bool add(const void* address, uint64_t bytes, bool write);
  // Pins a string page by page up to its terminating zero.
  bool add_string(const char* text);
  // How many ranges can still be pinned.
  static unsigned room() { return GuardThread::kMaxPins - this_guard().pin_count; }
  // Zeroed near memory while the object exists. nullptr: out of memory.
  std::byte* map_near(uint64_t bytes);
  uint64_t stack_pointer() const { return stack_pointer_; }

 private:
  uint64_t add_far(uint64_t address, uint64_t bytes, bool write);

  uint64_t stack_pointer_;
  unsigned first_;  // records of this call begin here
};

// The pager behind the guard; nullptr until far memory is in use. Set once at start.
void set_guard_pager(pager::Pager* pager);
pager::Pager* guard_pager();

inline bool is_far(const void* address) {
  pager::Pager* p = guard_pager();
  return p && p->table().contains(reinterpret_cast<uint64_t>(address));
}

// Whether some of [address, address + bytes) has a page word.
bool touches_far(const void* address, uint64_t bytes);

// Called in the child of a fork, whose pager has no pins: pins the memory of this thread's calls in progress again.
void repin_in_child();

// Most bytes that one call pins at once, 64 KiB to 1 MiB depending on the budget. What is longer is copied through near
// memory (near_pieces.h).
uint64_t pin_limit();

}  // namespace farside::preload
