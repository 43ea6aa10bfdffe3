// Wrappers of the functions of libc for signals. In handler mode rt_sigaction is not trapped, and SIGBUS must remain
// Farside's, for children of forks.
#include <signal.h>
#include <sys/syscall.h>

#include <cstring>

#include "preload/guard/libc/wrapper.h"
#include "preload/guard/process/process.h"
#include "preload/guard/signals/signals.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

EXPORT int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  static const auto real = libc_function<decltype(sigaction)>("sigaction");
  if (!guard_pager() || !in_handler_mode() || (signal != SIGBUS && signal != SIGSYS)) return real(signal, action, old);
  KernelSigaction wanted = {}, previous = {};
  if (action) {
    wanted = {reinterpret_cast<void*>(action->sa_sigaction), static_cast<unsigned long>(action->sa_flags), nullptr, 0};
    memcpy(&wanted.mask, &action->sa_mask, sizeof wanted.mask);
  }
  long r = guarded_sigaction(signal, action ? &wanted : nullptr, &previous);
  if (old) {
    memset(old, 0, sizeof *old);
    old->sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(previous.handler);
    old->sa_flags = static_cast<int>(previous.flags);
    memcpy(&old->sa_mask, &previous.mask, sizeof previous.mask);
  }
  return static_cast<int>(with_errno(r));
}

// In handler mode the kernel knows the program's alternate stack, except during a fork.
EXPORT int sigaltstack(const stack_t* stack, stack_t* old) {
  if (!guard_pager() || in_handler_mode()) return static_cast<int>(with_errno(os::call(SYS_sigaltstack, stack, old)));
  return static_cast<int>(with_errno(guarded_sigaltstack(stack, old, STACK_POINTER)));
}

EXPORT sighandler_t signal(int number, sighandler_t handler) {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, number);
  return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}
