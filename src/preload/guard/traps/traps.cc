// The SIGSYS handler, for system calls that Syscall User Dispatch traps. Most are passed to guarded_call(). Those that
// need the interrupted context are executed here: signal masks (the kernel restores them from the signal frame),
// rt_sigreturn, and the clone family, whose children start in the program's context. Async-signal-safe.
#include <asm/prctl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <cerrno>

#include "base/sync.h"
#include "base/thread_storage.h"
#include "preload/guard/calls/guarded_call.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/process/process.h"
#include "preload/guard/signals/interruptions.h"
#include "preload/guard/signals/signal_frames.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/signals/signals.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/guard/thread/thread_records.h"
#include "preload/guard/traps/clones.h"
#include "preload/guard/traps/masked_waits.h"
#include "preload/guard/traps/trapped_call.h"
#include "preload/guard/traps/user_dispatch.h"

#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif

namespace farside::preload {
namespace {

// Executes a call that reads a structure of the program, unless its address is 0, and then writes the former one:
// exchange(wanted or nullptr, former).
template <typename Structure, typename Exchange>
long exchange_structure(const Call& call, int wanted_argument, int former_argument, Exchange exchange) {
  auto* from = reinterpret_cast<const void*>(call.arg[wanted_argument]);
  auto* to = reinterpret_cast<void*>(call.arg[former_argument]);
  Structure wanted = {}, former = {};
  if (from && !load_structure(&wanted, from, sizeof wanted, call.stack_pointer)) return -EFAULT;
  long r = exchange(from ? &wanted : nullptr, &former);
  return r == 0 && to && !store_structure(to, &former, sizeof former, call.stack_pointer) ? -EFAULT : r;
}

// Changes the mask in the signal frame, which the kernel restores when the trap returns.
long sigprocmask_in(ucontext_t* context, const Call& call, const os::SignalSet* wanted, os::SignalSet* old) {
  os::SignalSet before = mask_of(context), set = wanted ? *wanted : 0, after = before;
  if (wanted) {
    switch (call.arg[0]) {
      case SIG_BLOCK:
        after = before | set;
        break;
      case SIG_UNBLOCK:
        after = before & ~set;
        break;
      case SIG_SETMASK:
        after = set;
        break;
      default:
        return -EINVAL;
    }
  }
  *old = before;
  constexpr os::SignalSet kNever = os::signal_bit(SIGKILL) | os::signal_bit(SIGSTOP);
  set_mask(context, without_ours(after) & ~kNever);
  return 0;
}

// The kernel accesses the area whenever it continues the thread, until that is unregistered.
long rseq_call(const Call& call) {
  constexpr long kUnregister = 1;
  auto area = static_cast<uint64_t>(call.arg[0]), bytes = static_cast<uint64_t>(call.arg[1]);
  if (!is_far(reinterpret_cast<void*>(area))) return guarded_call(call);
  bool ends = call.arg[2] == kUnregister;
  if (!ends) keep_near(own_record(), Kept::kSequence, area, bytes);
  long r = issue(call);
  if (ends == (r == 0)) keep_near(own_record(), Kept::kSequence, 0, 0);
  return r;
}

// The guard's state is found by GS in a thread with storage of its own, and belongs to its thread pointer.
long arch_prctl_call(const Call& call) {
  auto operation = static_cast<int>(call.arg[0]);
  auto address = static_cast<uint64_t>(call.arg[1]);
  if (is_static_program()) return thread_pointer_call(operation, address);
  OwnStorage* own = own_storage();
  if (own && operation == ARCH_SET_GS) return -EPERM;
  if (!own || operation != ARCH_SET_FS) return guarded_call(call);
  SignalsBlocked blocked;
  long r = os::call(SYS_arch_prctl, operation, address);
  if (r == 0) own->thread_pointer = address;
  return r;
}

long dispatch(ucontext_t* context, const Call& call) {
  long result;
  if (masked_wait_call(call, &result)) return result;
  switch (call.number) {
    case SYS_rt_sigprocmask:
      if (call.arg[3] != sizeof(os::SignalSet)) return -EINVAL;
      return exchange_structure<os::SignalSet>(
          call, 1, 2, [&](auto* wanted, auto* old) { return sigprocmask_in(context, call, wanted, old); });
    case SYS_rt_sigaction:
      if (call.arg[3] != sizeof(os::SignalSet)) return -EINVAL;
      return exchange_structure<KernelSigaction>(call, 1, 2, [&](auto* wanted, auto* old) {
        return guarded_sigaction(static_cast<int>(call.arg[0]), wanted, old);
      });
    case SYS_sigaltstack:
      return exchange_structure<stack_t>(
          call, 0, 1, [&](auto* wanted, auto* old) { return guarded_sigaltstack(wanted, old, call.stack_pointer); });
    case SYS_rt_sigreturn:
      farside_sigreturn_at(near_frame(call.stack_pointer));
    case SYS_clone:
    case SYS_clone3:
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
#endif
      return clone_in(context, call);
    case SYS_prctl:
      if (call.arg[0] == PR_SET_SYSCALL_USER_DISPATCH) return -EINVAL;
      return guarded_call(call);
    case SYS_arch_prctl:
      return arch_prctl_call(call);
    case SYS_rseq:  // the kernel accesses its memory at any time; a program without it asks for its processor by getcpu
      return is_static_program() ? -ENOSYS : rseq_call(call);
    case SYS_set_tid_address:
      keep_near(own_record(), Kept::kWord, static_cast<uint64_t>(call.arg[0]), sizeof(pid_t));
      return issue(call);
    case SYS_exit:
      keep_robust_list_near();
      end_thread(static_cast<int>(call.arg[0]));
      return os::farside_raw_syscall(SYS_exit, call.arg[0], 0, 0, 0, 0, 0);
    default:
      return guarded_call(call);
  }
}

void repeat_call(ucontext_t* context) {
  constexpr greg_t kInstruction = 2;  // bytes of SYSCALL; RAX still is the number
  registers_of(context)[REG_RIP] -= kInstruction;
}

}  // namespace

extern "C" void farside_on_sigsys(int signal, siginfo_t* info, void* argument) {
  auto* context = static_cast<ucontext_t*>(argument);
  if (info->si_code != SYS_USER_DISPATCH)
    return chain_signal(signal, info, argument, mask_of(context));  // of a seccomp filter of the program
  restore_mask_after_wait(context);
  Call call = call_of(context);
  long result = dispatch(context, call);
  if (result == kNotIssued) repeat_call(context);
  else registers_of(context)[REG_RAX] = result;
  if (!this_guard().handlers.sigsys_deferred) return;
  if (result == -EINTR && waits_with_mask(call)) end_wait(context);
}

}  // namespace farside::preload
