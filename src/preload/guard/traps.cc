#include "preload/guard/traps.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/inherited_fds.h"
#include "base/log.h"
#include "base/sync.h"
#include "preload/guard/fork.h"
#include "preload/guard/guard.h"
#include "preload/guard/interruptions.h"
#include "preload/guard/process.h"
#include "preload/guard/signal_frames.h"
#include "preload/guard/signals.h"
#include "preload/guard/syscall_table.h"
#include "preload/guard/thread_pointer.h"
#include "preload/guard/thread_records.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif
#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif

namespace farside::preload {
namespace {

int set_dispatch(bool on) {
  auto text = os::syscall_text();
  if (!on) return os::call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  return os::call(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, text.data(), text.size(),
                  &t_guard.selector);
}

// ---- The interrupted context ----

using Registers = greg_t*;

Registers registers_of(ucontext_t* context) { return context->uc_mcontext.gregs; }

Call call_of(ucontext_t* context) {
  Registers r = registers_of(context);
  return {r[REG_RAX],
          {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]},
          static_cast<uint64_t>(r[REG_RSP])};
}

void set_mask(ucontext_t* context, os::SignalSet mask) { memcpy(&context->uc_sigmask, &mask, sizeof mask); }

// Changes the mask in the signal frame, which the kernel restores when the trap returns.
long sigprocmask_in(ucontext_t* context, const Call& call) {
  if (call.arg[3] != sizeof(os::SignalSet)) return -EINVAL;
  auto* wanted = reinterpret_cast<const os::SignalSet*>(call.arg[1]);
  auto* old = reinterpret_cast<os::SignalSet*>(call.arg[2]);
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
  if (old) *old = before;
  constexpr os::SignalSet kNever = os::signal_bit(SIGKILL) | os::signal_bit(SIGSTOP);
  set_mask(context, without_ours(after) & ~kNever);
  return 0;
}

// Calls that wait with a given signal mask: the mask is copied to near memory, without SIGBUS and SIGSYS.
long call_with_mask(const Call& call, int mask_arg) {
  auto* given = reinterpret_cast<const os::SignalSet*>(call.arg[mask_arg]);
  if (!given) return guarded_call(call);
  os::SignalSet mask = without_ours(*given);
  t_guard.wait_mask = mask;
  Call changed = call;
  changed.arg[mask_arg] = reinterpret_cast<long>(&mask);
  return guarded_call(changed);
}

struct MaskArgument {  // of pselect6
  const os::SignalSet* set;
  size_t bytes;
};

long pselect_call(const Call& call) {
  auto* given = reinterpret_cast<const MaskArgument*>(call.arg[5]);
  Call changed = call;
  MaskArgument argument = {};
  os::SignalSet mask = 0;
  if (given) {
    argument = *given;
    if (argument.set) {
      mask = without_ours(*argument.set);
      t_guard.wait_mask = mask;
      argument.set = &mask;
    }
    changed.arg[5] = reinterpret_cast<long>(&argument);
  }
  Pins pins(call.stack_pointer);
  uint64_t set_bytes = call.arg[0] > 0 ? align_up(static_cast<uint64_t>(call.arg[0]), 64) / 8 : 0;
  for (int i = 1; i <= 3; i++) pins.add(reinterpret_cast<void*>(call.arg[i]), set_bytes, true);
  pins.add(reinterpret_cast<void*>(call.arg[4]), sizeof(timespec), true);
  return issue(changed);
}

long ppoll_call(const Call& call) {
  Pins pins(call.stack_pointer);
  pins.add(reinterpret_cast<void*>(call.arg[0]), static_cast<uint64_t>(call.arg[1]) * 8, true);
  pins.add(reinterpret_cast<void*>(call.arg[2]), sizeof(timespec), true);
  return call_with_mask(call, 3);
}

long epoll_pwait_call(const Call& call) {
  Pins pins(call.stack_pointer);
  pins.add(reinterpret_cast<void*>(call.arg[1]), static_cast<uint64_t>(call.arg[2]) * 12, true);
  if (call.number == SYS_epoll_pwait2) pins.add(reinterpret_cast<void*>(call.arg[3]), sizeof(timespec), false);
  return call_with_mask(call, 4);
}

// ---- The clone family ----

constexpr uint64_t kClearHandlers = 0x1'0000'0000;  // CLONE_CLEAR_SIGHAND of Linux 5.5

constexpr uint64_t kChildWord = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;

struct CloneRequest {
  uint64_t flags;
  uint64_t stack;       // stack pointer of the child; 0: as the parent's
  uint64_t storage;     // its thread pointer, if the flags set one
  uint64_t numbers[3];  // where the kernel writes numbers of the child; 0: nowhere
  uint64_t word;        // where it writes in the child, when that begins or ends; 0: nowhere
  uint64_t set_tid;     // numbers that are chosen for the child
  uint64_t set_tid_count;
};

CloneRequest request_of(const Call& call) {
  auto arg = [&](int i) { return static_cast<uint64_t>(call.arg[i]); };
  switch (call.number) {
    case SYS_clone: {
      uint64_t flags = arg(0), in_parent = flags & (CLONE_PARENT_SETTID | CLONE_PIDFD) ? arg(2) : 0;
      return {flags,
              arg(1),
              arg(4),
              {in_parent, flags & CLONE_CHILD_SETTID ? arg(3) : 0, 0},
              flags & kChildWord ? arg(3) : 0,
              0,
              0};
    }
    case SYS_clone3: {
      auto* args = reinterpret_cast<const clone_args*>(call.arg[0]);
      bool has_set_tid = static_cast<size_t>(call.arg[1]) >= offsetof(clone_args, cgroup);
      auto if_set = [&](uint64_t flag, uint64_t address) { return args->flags & flag ? address : 0; };
      return {args->flags,
              args->stack ? args->stack + args->stack_size : 0,
              args->tls,
              {if_set(CLONE_PIDFD, args->pidfd), if_set(CLONE_PARENT_SETTID, args->parent_tid),
               if_set(CLONE_CHILD_SETTID, args->child_tid)},
              if_set(kChildWord, args->child_tid),
              has_set_tid ? args->set_tid : 0,
              has_set_tid ? args->set_tid_size : 0};
    }
#ifdef SYS_vfork
    case SYS_vfork:
      return {CLONE_VM | CLONE_VFORK, 0, 0, {}, 0, 0, 0};
#endif
    default:
      return {0, 0, 0, {}, 0, 0, 0};  // SYS_fork
  }
}

// Issues the call as a plain fork: the same flags, but memory is not shared and the stack is not set. A vfork child
// would run unguarded in this process's memory, so it gets a copy. The parent does not wait for the child's exec, so a
// failure that the child would report through shared memory is lost.
long issue_fork(const Call& call) {
  uint64_t dropped = CLONE_VM | CLONE_VFORK | (is_static_program() ? CLONE_SETTLS : 0);
  if (call.number == SYS_clone3) {
    clone_args args = {};
    auto bytes = static_cast<size_t>(call.arg[1]) < sizeof args ? static_cast<size_t>(call.arg[1]) : sizeof args;
    memcpy(&args, reinterpret_cast<void*>(call.arg[0]), bytes);
    args.flags &= ~dropped;
    args.stack = args.stack_size = 0;
    return os::call(SYS_clone3, &args, bytes);
  }
  if (call.number != SYS_clone) return os::call(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  return os::call(SYS_clone, call.arg[0] & ~static_cast<long>(dropped), 0, call.arg[2], call.arg[3], call.arg[4]);
}

void pin_numbers(Pins& pins, const CloneRequest& request) {
  for (uint64_t number : request.numbers) pins.add(reinterpret_cast<void*>(number), sizeof(pid_t), true);
  pins.add(reinterpret_cast<void*>(request.set_tid), request.set_tid_count * sizeof(pid_t), false);
}

// Forks. In the child, far memory works and system calls are guarded when this returns into the program.
long fork_in(ucontext_t* context, const Call& call, const CloneRequest& request) {
  SignalsBlocked blocked;
  if (t_guard.handlers.sigsys_deferred) return kNotIssued;  // the child would not get that signal
  // The kernel writes the child's number in the child before its memory is watched there: if the page were not near,
  // the child would get an empty one.
  Pins pins(call.stack_pointer);
  pin_numbers(pins, request);
  lock_thread_records();
  ForkScope scope;
  long r;
  {
    ActionsInFork actions;
    r = issue_fork(call);
    if (r == 0 && (request.flags & kClearHandlers)) actions.reset_in_child();
  }
  unlock_thread_records();
  {
    ReplacingFds replacing(r >= 0 && (request.flags & CLONE_FILES) != 0);
    if (r == 0) scope.in_child();
    else scope.in_parent(r > 0);
  }
  if (r != 0) return r;
  keep_own_record_in_child();
  set_dispatch(true);
  if (request.stack) registers_of(context)[REG_RSP] = static_cast<greg_t>(request.stack);
  set_mask(context, without_ours(mask_of(context)));
  if (is_static_program()) {
    if (request.flags & CLONE_SETTLS) t_guard.program_thread_pointer = request.storage;
    start_threads_in_child();
  }
  return 0;
}

// ---- Threads ----

// The state that a new thread needs to arm the guard and then to continue in the program's context. It is at the top of
// the thread's alternate stack, on which the thread runs until it does.
struct ThreadStart {
  uint64_t rbx, rbp, r12, r13, r14, r15, rdi, rsi, rdx, r8, r9, r10, rsp, rip;
  uint64_t thread_pointer;  // of a thread of a static program
  os::SignalSet mask;       // of such a thread; all signals are blocked before
  ThreadRecord* record;
};
static_assert(offsetof(ThreadStart, rip) == 13 * 8 && offsetof(ThreadStart, thread_pointer) == 14 * 8,
              "farside_clone_thread below loads by these offsets");

}  // namespace

// Issues clone or clone3 (number in rdi, arguments in rsi, rdx, rcx, r8, r9) for a thread. The child uses `start` (on
// the stack, first word above the return address) and does not return here.
extern "C" long farside_clone_thread(long number, long a, long b, long c, long d, long e, void* start);
extern "C" void farside_thread_began(void* start);

asm(R"(
  .section farside_syscalls,"ax",@progbits
  .globl farside_clone_thread
  .hidden farside_clone_thread
  .type farside_clone_thread,@function
farside_clone_thread:
  pushq %r12
  movq 16(%rsp), %r12
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  syscall
  testq %rax, %rax
  jz 1f
  popq %r12
  ret
1:
  movq %r12, %rsp
  andq $-16, %rsp
  movq %r12, %rdi
  xorl %ebp, %ebp
  call farside_thread_began
  cmpb $0, farside_static_program(%rip)
  je 2f
  movq 112(%r12), %rax
  wrfsbase %rax
2:
  movq 0(%r12), %rbx
  movq 8(%r12), %rbp
  movq 24(%r12), %r13
  movq 32(%r12), %r14
  movq 40(%r12), %r15
  movq 48(%r12), %rdi
  movq 56(%r12), %rsi
  movq 64(%r12), %rdx
  movq 72(%r12), %r8
  movq 80(%r12), %r9
  movq 88(%r12), %r10
  movq 96(%r12), %rsp
  movq 104(%r12), %rcx
  movq 16(%r12), %r12
  xorl %eax, %eax
  jmp *%rcx
  .size farside_clone_thread, .-farside_clone_thread
  .previous
)");

extern "C" void farside_thread_began(void* argument) {
  auto* start = static_cast<ThreadStart*>(argument);
  t_guard = GuardThread{};
  if (is_static_program()) begin_thread_of_static_program(start->thread_pointer);
  use_record(start->record);
  t_guard.selector = kSelectorBlock;
  t_guard.armed = true;
  if (int error = set_dispatch(true)) die("cannot guard a new thread (error {})", -error);
  if (is_static_program()) os::sigprocmask(SIG_SETMASK, &start->mask, nullptr);
}

namespace {

long clone_thread(ucontext_t* context, const Call& call, const CloneRequest& request) {
  Pins pins(call.stack_pointer);
  pin_numbers(pins, request);
  ThreadRecord* record = take_record();
  if (request.stack && (request.flags & CLONE_SETTLS)) keep_thread_storage(record, request.stack, request.storage);
  keep_near(record, Kept::kWord, request.word, sizeof(pid_t));
  auto* start = reinterpret_cast<ThreadStart*>(record->stack + kSignalStackBytes - align_up(sizeof(ThreadStart), 64));
  Registers r = registers_of(context);
  auto reg = [&](int name) { return static_cast<uint64_t>(r[name]); };
  *start = {reg(REG_RBX),
            reg(REG_RBP),
            reg(REG_R12),
            reg(REG_R13),
            reg(REG_R14),
            reg(REG_R15),
            reg(REG_RDI),
            reg(REG_RSI),
            reg(REG_RDX),
            reg(REG_R8),
            reg(REG_R9),
            reg(REG_R10),
            request.stack ? request.stack : reg(REG_RSP),
            reg(REG_RIP),
            request.flags & CLONE_SETTLS ? request.storage : t_guard.program_thread_pointer,
            without_ours(mask_of(context)),
            record};
  // The new thread inherits the mask of this one, which must be the program's at the time of the trap.
  os::SignalSet mask = is_static_program() ? kAllButOurs : start->mask, before;
  os::sigprocmask(SIG_SETMASK, &mask, &before);
  long result;
  if (call.number == SYS_clone3) {
    clone_args args = {};
    auto bytes = static_cast<size_t>(call.arg[1]) < sizeof args ? static_cast<size_t>(call.arg[1]) : sizeof args;
    memcpy(&args, reinterpret_cast<void*>(call.arg[0]), bytes);
    if (record->storage) {
      args.flags |= CLONE_SETTLS;
      args.tls = reinterpret_cast<uint64_t>(record->storage);
    }
    result = farside_clone_thread(SYS_clone3, reinterpret_cast<long>(&args), static_cast<long>(bytes), 0, 0, 0, start);
  } else {
    long flags = call.arg[0] | (record->storage ? CLONE_SETTLS : 0);
    long storage = record->storage ? reinterpret_cast<long>(record->storage) : call.arg[4];
    result = farside_clone_thread(SYS_clone, flags, call.arg[1], call.arg[2], call.arg[3], storage, start);
  }
  if (result < 0) record->tid.store(0);
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
  return result;
}

// What the kernel says to arguments of a size that it does not know.
int size_error(const Call& call) {
  if (call.number != SYS_clone3) return 0;
  auto bytes = static_cast<size_t>(call.arg[1]);
  constexpr size_t kFirstVersion = 64;
  if (bytes > kPageSize) return -E2BIG;
  if (bytes < kFirstVersion) return -EINVAL;
  auto* arguments = reinterpret_cast<const char*>(call.arg[0]);
  bool newer =
      std::any_of(arguments + std::min(bytes, sizeof(clone_args)), arguments + bytes, [](char c) { return c; });
  return newer ? -E2BIG : 0;
}

long clone_in(ucontext_t* context, const Call& call) {
  if (int error = size_error(call)) return error;
  CloneRequest request = request_of(call);
  bool shares_memory = (request.flags & CLONE_VM) != 0;
  if (!shares_memory || (request.flags & CLONE_VFORK)) return fork_in(context, call, request);
  if (!(request.flags & CLONE_THREAD)) guard_pager()->assume_other_writers();
  return clone_thread(context, call, request);
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

long dispatch(ucontext_t* context, const Call& call) {
  switch (call.number) {
    case SYS_rt_sigprocmask:
      return sigprocmask_in(context, call);
    case SYS_rt_sigaction:
      return guarded_sigaction(static_cast<int>(call.arg[0]), reinterpret_cast<const KernelSigaction*>(call.arg[1]),
                               reinterpret_cast<KernelSigaction*>(call.arg[2]), static_cast<size_t>(call.arg[3]));
    case SYS_sigaltstack:
      return guarded_sigaltstack(reinterpret_cast<const stack_t*>(call.arg[0]), reinterpret_cast<stack_t*>(call.arg[1]),
                                 call.stack_pointer);
    case SYS_rt_sigreturn:
      farside_sigreturn_at(near_frame(call.stack_pointer));
    case SYS_rt_sigsuspend:
      return call_with_mask(call, 0);
    case SYS_ppoll:
      return ppoll_call(call);
    case SYS_pselect6:
      return pselect_call(call);
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return epoll_pwait_call(call);
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
      if (!is_static_program()) return guarded_call(call);
      return thread_pointer_call(static_cast<int>(call.arg[0]), static_cast<uint64_t>(call.arg[1]));
    case SYS_rseq:  // the kernel accesses its memory at any time; a program without it asks for its processor by getcpu
      return is_static_program() ? -ENOSYS : rseq_call(call);
    case SYS_set_tid_address:
      keep_near(own_record(), Kept::kWord, static_cast<uint64_t>(call.arg[0]), sizeof(pid_t));
      return issue(call);
    case SYS_exit:
      keep_robust_list_near();
      forget_thread();
      return os::farside_raw_syscall(SYS_exit, call.arg[0], 0, 0, 0, 0, 0);
    default:
      return guarded_call(call);
  }
}

// Whether the call waited with a signal mask of its own, t_guard.wait_mask.
bool waits_with_mask(const Call& call) {
  switch (call.number) {
    case SYS_rt_sigsuspend:
      return true;
    case SYS_ppoll:
      return call.arg[3] != 0;
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
      return call.arg[4] != 0;
    case SYS_pselect6: {
      auto* mask = reinterpret_cast<const MaskArgument*>(call.arg[5]);
      return mask && mask->set;
    }
    default:
      return false;
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
  if (!t_guard.handlers.sigsys_deferred) return;
  if (result == -EINTR && waits_with_mask(call)) end_wait(context);
}

namespace {
// Gives the calling thread an alternate stack of Farside's, and records the one that the kernel knew, the program's.
void prepare_thread() {
  stack_t program = {};
  os::call(SYS_sigaltstack, nullptr, &program);
  auto begin = reinterpret_cast<uint64_t>(program.ss_sp);
  if (t_guard.stack_low != 0 && begin == t_guard.stack_low) return;
  bool none = (program.ss_flags & SS_DISABLE) != 0;
  t_guard.app_stack = none ? 0 : begin;
  t_guard.app_stack_bytes = none ? 0 : program.ss_size;
  if (t_guard.stack_low == 0) use_record(take_record());
  else use_alternate_stack(true);
}
}  // namespace

int arm_thread(bool block) {
  prepare_thread();
  os::sigprocmask(SIG_UNBLOCK, &kOurSignals, nullptr);  // a library may have blocked all signals for its threads
  t_guard.selector = block ? kSelectorBlock : kSelectorAllow;
  t_guard.armed = true;
  return set_dispatch(true);
}

void use_alternate_stack(bool use) {
  stack_t stack = {reinterpret_cast<void*>(t_guard.stack_low), use ? 0 : SS_DISABLE, kSignalStackBytes};
  os::call(SYS_sigaltstack, &stack, nullptr);
}

void leave_alternate_stack() {
  stack_t program = {reinterpret_cast<void*>(t_guard.app_stack), t_guard.app_stack ? 0 : SS_DISABLE,
                     t_guard.app_stack_bytes};
  os::call(SYS_sigaltstack, &program, nullptr);
  t_guard.app_stack = t_guard.app_stack_bytes = 0;
}

bool can_trap_system_calls() {
  if (set_dispatch(true) != 0) return false;  // the selector allows all system calls now
  set_dispatch(false);
  return true;
}

}  // namespace farside::preload
