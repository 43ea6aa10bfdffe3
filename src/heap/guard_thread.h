// What the guard keeps for each thread: the selector byte that the kernel reads at every system call, and the pins of
// system calls in progress. In static TLS: always near, never lazily allocated.
#pragma once
#include <cstdint>

namespace farside::heap {

// Kernel ABI of Syscall User Dispatch.
inline constexpr char kSelectorAllow = 0;
inline constexpr char kSelectorBlock = 1;

struct PinRecord {
  uint64_t stack_pointer;  // of the program at the time of the call
  uint64_t address;
  uint64_t bytes;
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

}  // namespace farside::heap
