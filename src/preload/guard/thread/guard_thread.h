// The guard's state of each thread: the selector byte that the kernel reads at every system call, the pins of system
// calls in progress, and a signal that arrived during a fault. It is in static TLS, so it is near and never allocated
// lazily. Accessed by its thread and by signal handlers of that thread only.
#pragma once
#include <signal.h>

#include <cstdint>

#include "base/thread_storage.h"

namespace farside::preload {

// Kernel ABI of Syscall User Dispatch.
inline constexpr char kSelectorAllow = 0;
inline constexpr char kSelectorBlock = 1;

// What a system call holds: pinned far memory, or near memory that was mapped for it.
struct PinRecord {
  static constexpr uint64_t kMapped = uint64_t{1} << 63;
  uint64_t stack_pointer;  // of the program at the time of the call
  uint64_t address;
  uint64_t bytes;  // with kMapped: of near memory
};

// Which of Farside's handlers the thread runs, and whether a signal of the program arrived in that of SIGSYS
// (interruptions.h).
// Blocking signals by the masks of these handlers would take the process's only signal lock twice at every fault
// (docs/decisions/0008). Each pair is cleared by one instruction.
struct HandlersRunning {
  volatile uint8_t sigsys, sigsys_deferred;
  volatile uint8_t sigbus, unused;
};

// A signal of a queued kind that was returned to the kernel's queue, and the data that is delivered next in its place.
struct ReturnedSignal {
  int signal;  // 0: none
  siginfo_t returned, next;
};

struct GuardThread {
  volatile char selector;  // kSelectorAllow: system calls pass; kSelectorBlock: they trap
  bool armed;
  alignas(4) HandlersRunning handlers;
  uint64_t program_thread_pointer;  // in a static program: its FS while a handler of Farside's runs
  unsigned pin_count;
  static constexpr unsigned kMaxPins = 64;
  PinRecord pins[kMaxPins];
  uint64_t stack_low, stack_high;       // the alternate signal stack that is registered with the kernel
  uint64_t app_stack, app_stack_bytes;  // the alternate stack that the program has set; reported to it, not used
  ReturnedSignal returned;
  int last_deferred;   // the signal that arrived last during the handler of SIGSYS
  uint64_t wait_mask;  // of the last call that waited with a mask of its own
  bool wait_ended;     // by that signal; the mask below is then to be restored
  uint64_t mask_after_wait;
};

extern __attribute__((tls_model("initial-exec"))) thread_local GuardThread t_guard;
inline GuardThread& this_guard() { return of_this_thread(t_guard); }

// Whether the address is in the calling thread's alternate signal stack.
inline bool on_alternate_stack(uint64_t address) {
  return address >= this_guard().stack_low && address < this_guard().stack_high;
}

// While one exists, system calls of this thread are not trapped.
class Unguarded {
 public:
  Unguarded() : before_(this_guard().selector) { this_guard().selector = kSelectorAllow; }
  ~Unguarded() { this_guard().selector = before_; }
  Unguarded(const Unguarded&) = delete;
  Unguarded& operator=(const Unguarded&) = delete;

 private:
  char before_;
};

}  // namespace farside::preload
