#include "preload/guard/thread/alternate_stack.h"

#include <sys/syscall.h>

#include <cerrno>

#include "base/os.h"
#include "preload/guard/thread/guard_thread.h"

namespace farside::preload {

void use_alternate_stack(bool use) {
  stack_t stack = {reinterpret_cast<void*>(this_guard().stack_low), use ? 0 : SS_DISABLE, kSignalStackBytes};
  os::call(SYS_sigaltstack, &stack, nullptr);
}

void leave_alternate_stack() {
  stack_t program = {reinterpret_cast<void*>(this_guard().app_stack), this_guard().app_stack ? 0 : SS_DISABLE,
                     this_guard().app_stack_bytes};
  os::call(SYS_sigaltstack, &program, nullptr);
  this_guard().app_stack = this_guard().app_stack_bytes = 0;
}

namespace {
// The kernel's limit for an alternate stack. libc's MINSIGSTKSZ grows with the processor's registers, and exceeds the
// 32 KiB that Go's runtime has where there are tile registers (AMX).
constexpr size_t kMinStackBytes = 2048;

}  // namespace

long guarded_sigaltstack(const stack_t* stack, stack_t* old, uint64_t stack_pointer) {
  GuardThread& g = this_guard();
  bool on_it = on_alternate_stack(stack_pointer);
  stack_t wanted = {};
  if (stack) wanted = *stack;
  stack_t previous = {reinterpret_cast<void*>(g.app_stack), 0, g.app_stack_bytes};
  if (!g.app_stack) previous = {nullptr, SS_DISABLE, 0};
  // The truth for a handler that looks for its own stack, as Go's do; uc_stack of its context says the same.
  if (on_it && g.app_stack) previous = {reinterpret_cast<void*>(g.stack_low), SS_ONSTACK, g.stack_high - g.stack_low};
  if (stack) {
    if (on_it && g.app_stack) return -EPERM;
    constexpr int kFlags = static_cast<int>(1U << 31);  // SS_AUTODISARM
    int mode = wanted.ss_flags & ~kFlags;
    if (mode != 0 && mode != SS_DISABLE && mode != SS_ONSTACK) return -EINVAL;
    bool disable = mode == SS_DISABLE;
    if (!disable && wanted.ss_size < kMinStackBytes) return -ENOMEM;
    g.app_stack = disable ? 0 : reinterpret_cast<uint64_t>(wanted.ss_sp);
    g.app_stack_bytes = disable ? 0 : wanted.ss_size;
  }
  if (old) *old = previous;
  return 0;
}

}  // namespace farside::preload
