#include "preload/guard/traps/user_dispatch.h"

#include <signal.h>
#include <sys/syscall.h>

#include "base/os.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/guard_thread.h"
#include "preload/guard/thread/thread_records.h"

namespace farside::preload {

int set_dispatch(bool on) {
  auto text = os::syscall_text();
  if (!on) return os::call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  return os::call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, text.data(), text.size(),
                  &this_guard().selector);
}

namespace {

// Gives the calling thread an alternate stack of Farside's, and records the one that the kernel knew, the program's.
void prepare_thread() {
  stack_t program = {};
  os::call(SYS_sigaltstack, nullptr, &program);
  auto begin = reinterpret_cast<uint64_t>(program.ss_sp);
  if (this_guard().stack_low != 0 && begin == this_guard().stack_low) return;
  bool none = (program.ss_flags & SS_DISABLE) != 0;
  this_guard().app_stack = none ? 0 : begin;
  this_guard().app_stack_bytes = none ? 0 : program.ss_size;
  if (this_guard().stack_low == 0) use_record(take_record());
  else use_alternate_stack(true);
}

}  // namespace

int arm_thread(bool block) {
  prepare_thread();
  os::sigprocmask(SIG_UNBLOCK, &kOurSignals, nullptr);  // a library may have blocked all signals for its threads
  this_guard().selector = block ? kSelectorBlock : kSelectorAllow;
  this_guard().armed = true;
  return set_dispatch(true);
}

bool can_trap_system_calls() {
  if (set_dispatch(true) != 0) return false;  // the selector allows all system calls now
  set_dispatch(false);
  return true;
}

}  // namespace farside::preload
