// What the guard keeps for each thread: the selector byte that the kernel reads at every system call, the pins of
// system calls in progress, and the signal that has come during a fault. In static TLS: always near, never lazily
// allocated.
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

// A fault in progress. No handler of the program may run meanwhile: it could touch a page that the fault path owns. The
// kernel could keep signals off by the mask of our handler, but it takes the process's one signal lock twice for that
// at every fault (docs/decisions/0008). Instead a signal that comes is kept here, all further ones are blocked, and the
// fault's handler delivers it at its end.
struct FaultInProgress {
  volatile bool active;
  volatile int signal;  // the one that came; 0: none
  siginfo_t info;
};

struct GuardThread {
  volatile char selector;  // kSelectorAllow: system calls pass; kSelectorBlock: they trap
  bool armed;
  unsigned pin_count;
  static constexpr unsigned kMaxPins = 64;
  PinRecord pins[kMaxPins];
  uint64_t stack_low, stack_high;       // the alternate signal stack that is registered with the kernel
  uint64_t app_stack, app_stack_bytes;  // what the program thinks its alternate stack is
  int app_stack_flags;
  FaultInProgress fault;
};

extern __attribute__((tls_model("initial-exec"))) thread_local GuardThread t_guard;

// System calls of this thread pass the guard while one exists.
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
