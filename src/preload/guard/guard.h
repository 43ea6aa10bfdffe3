// The syscall guard (DESIGN 3). In signal mode the kernel gets EFAULT where it touches an absent page, so no system
// call may see one: every call of the program goes through here, either from the wrappers of frequent libc calls or
// from the SIGSYS handler of Syscall User Dispatch. Far arguments are pinned near for the time of the call.
//
// All of it may run inside the SIGSYS handler, on the alternate stack, and be interrupted by the program's own signal
// handlers, which may call it again or jump out of it. Therefore: no locks held across a system call, no heap, pins are
// recorded with the program's stack pointer so that those of frames that were jumped over are found and dropped.
#pragma once
#include <sys/uio.h>

#include <cstdint>

#include "pager/pager.h"
#include "preload/guard/guard_thread.h"

namespace farside::preload {

// One system call as the program made it.
struct Call {
  long number;
  long arg[6];
  uint64_t stack_pointer;  // of the program, to tell frames apart
};

// Pins far memory for the life of the object. Addresses that are not far cost one comparison.
class Pins {
 public:
  explicit Pins(uint64_t stack_pointer);
  ~Pins();
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  // Pins what lies in far space of [address, address + bytes). False if a part is not the program's memory; the kernel
  // will say EFAULT then, as it would natively.
  bool add(const void* address, uint64_t bytes, bool write);
  // A string: pins page after page up to its end.
  bool add_string(const char* text);

 private:
  uint64_t stack_pointer_;
  unsigned first_;  // records of this call begin here
};

// Issues the call with its far arguments pinned. Returns the kernel's result (-errno on failure).
long guarded_call(const Call& call);

// The pager behind the guard; nullptr until far memory is in use. Set once at start.
void set_guard_pager(pager::Pager* pager);
pager::Pager* guard_pager();

inline bool is_far(const void* address) {
  pager::Pager* p = guard_pager();
  return p && p->contains(reinterpret_cast<uint64_t>(address));
}

// In the child of a fork: the pager forgot all pins; those of this thread's calls in progress are taken again.
void repin_in_child();

// Most bytes of one call that are pinned at once; longer transfers are split.
uint64_t pin_limit();

}  // namespace farside::preload
