// The guard's state of each thread: the selector byte that the kernel reads at every system call, the pins of system
// calls in progress, and a signal that arrived during a fault. It is in static TLS, so it is near and never allocated
// lazily. Accessed by its thread and by signal handlers of that thread only.
#pragma once
#include <signal.h>

#include <cstdint>

namespace farside::preload {

// Kernel ABI of Syscall User Dispatch.
inline constexpr char kSelectorAllow = 0;
inline constexpr char kSelectorBlock = 1;

struct PinRecord {
  uint64_t stack_pointer;  // of the program at the time of the call
  uint64_t address;
  uint64_t bytes;
};

// A fault in progress. No signal handler of the program may run during it: it could access a page that the fault path
// owns. Blocking signals by the mask of the SIGBUS handler would take the process's only signal lock twice at every
// fault (docs/decisions/0008). Instead a signal that arrives is stored here, all further ones are blocked, and the
// SIGBUS handler delivers it when the fault is resolved.
struct FaultInProgress {
  volatile bool active;
  volatile int signal;  // the one that arrived; 0: none
  siginfo_t info;
};

struct GuardThread {
  volatile char selector;  // kSelectorAllow: system calls pass; kSelectorBlock: they trap
  bool armed;
  unsigned pin_count;
  static constexpr unsigned kMaxPins = 64;
  PinRecord pins[kMaxPins];
  uint64_t stack_low, stack_high;       // the alternate signal stack that is registered with the kernel
  uint64_t app_stack, app_stack_bytes;  // the alternate stack that the program has set; reported to it, not used
  FaultInProgress fault;
};

extern __attribute__((tls_model("initial-exec"))) thread_local GuardThread t_guard;

// While one exists, system calls of this thread are not trapped.
class Unguarded {
 public:
  Unguarded() : before_(t_guard.selector) { t_guard.selector = kSelectorAllow; }
  ~Unguarded() { t_guard.selector = before_; }
  Unguarded(const Unguarded&) = delete;
  Unguarded& operator=(const Unguarded&) = delete;

 private:
  char before_;
};

}  // namespace farside::preload
