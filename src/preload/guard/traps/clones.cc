#include "preload/guard/traps/clones.h"

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/inherited_fds.h"
#include "base/log.h"
#include "base/sync.h"
#include "base/thread_storage.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/process/fork.h"
#include "preload/guard/process/process.h"
#include "preload/guard/signals/interruptions.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/signals/signals.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/guard/thread/thread_records.h"
#include "preload/guard/traps/trapped_call.h"
#include "preload/guard/traps/user_dispatch.h"

namespace farside::preload {
namespace {

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

clone_args arguments_of(const Call& clone3) { return *reinterpret_cast<const clone_args*>(clone3.arg[0]); }

// Issues the call as a plain fork: the same flags, but memory is not shared and the stack is not set. A vfork child
// would run unguarded in this process's memory, so it gets a copy. The parent does not wait for the child's exec, so a
// failure that the child would report through shared memory is lost.
long issue_fork(const Call& call) {
  uint64_t dropped = CLONE_VM | CLONE_VFORK | (is_static_program() ? CLONE_SETTLS : 0);
  if (call.number == SYS_clone3) {
    clone_args args = arguments_of(call);
    args.flags &= ~dropped;
    args.stack = args.stack_size = 0;
    return os::call(SYS_clone3, &args, call.arg[1]);
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
  if (this_guard().handlers.sigsys_deferred) return kNotIssued;  // the child would not get that signal
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
    if (request.flags & CLONE_SETTLS) this_guard().program_thread_pointer = request.storage;
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
  os::SignalSet mask;
  ThreadRecord* record;
  OwnStorage* own;  // of a thread whose thread pointer is not its own; nullptr: it has libc's storage
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
  if (start->own) use_own_storage(start->own);
  this_guard() = GuardThread{};
  if (is_static_program()) begin_thread_of_static_program(start->thread_pointer);
  use_record(start->record);
  this_guard().selector = kSelectorBlock;
  this_guard().armed = true;
  if (int error = set_dispatch(true)) die("cannot guard a new thread (error {})", -error);
  os::sigprocmask(SIG_SETMASK, &start->mask, nullptr);
}

namespace {

ThreadStart* make_start(ucontext_t* context, const CloneRequest& request, ThreadRecord* record, OwnStorage* own) {
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
            request.flags & CLONE_SETTLS ? request.storage : this_guard().program_thread_pointer,
            without_ours(mask_of(context)),
            record,
            own};
  return start;
}

// storage: Farside's thread-local storage of a thread of a static program; nullptr: as the program says.
long issue_clone(const Call& call, void* storage, ThreadStart* start) {
  if (call.number == SYS_clone3) {
    clone_args args = arguments_of(call);
    if (storage) {
      args.flags |= CLONE_SETTLS;
      args.tls = reinterpret_cast<uint64_t>(storage);
    }
    return farside_clone_thread(SYS_clone3, reinterpret_cast<long>(&args), call.arg[1], 0, 0, 0, start);
  }
  long flags = call.arg[0] | (storage ? CLONE_SETTLS : 0);
  long thread_pointer = storage ? reinterpret_cast<long>(storage) : call.arg[4];
  return farside_clone_thread(SYS_clone, flags, call.arg[1], call.arg[2], call.arg[3], thread_pointer, start);
}

// Whether a new thread gets storage that is libc's: as libc and compilers demand, it begins with its own address.
bool has_storage_of_libc(const CloneRequest& request, uint64_t stack_pointer) {
  uint64_t begin[3] = {};  // of the thread descriptor
  return (request.flags & CLONE_SETTLS) &&
         load_structure(begin, reinterpret_cast<void*>(request.storage), sizeof begin, stack_pointer) &&
         begin[0] == request.storage && begin[2] == request.storage;
}

OwnStorage* own_storage_for(ThreadRecord* record, const CloneRequest& request, uint64_t stack_pointer) {
  if (is_static_program() || has_storage_of_libc(request, stack_pointer)) return nullptr;
  return make_own_storage(record, request.flags & CLONE_SETTLS ? request.storage : thread_pointer());
}

long clone_thread(ucontext_t* context, const Call& call, const CloneRequest& request) {
  Pins pins(call.stack_pointer);
  pin_numbers(pins, request);
  ThreadRecord* record = take_record();
  if (request.stack && (request.flags & CLONE_SETTLS)) keep_thread_storage(record, request.stack, request.storage);
  keep_near(record, Kept::kWord, request.word, sizeof(pid_t));
  ThreadStart* start = make_start(context, request, record, own_storage_for(record, request, call.stack_pointer));
  os::SignalSet before;
  os::sigprocmask(SIG_SETMASK, &kAllButOurs, &before);  // of the new thread, too, until its guard is armed
  long result = issue_clone(call, record->storage, start);
  if (result < 0) record->tid.store(0);
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
  return result;
}

// Has a call of clone3 refer to a copy of its arguments, as far as Farside knows them. The error is the kernel's.
int copy_arguments(Call* clone3, clone_args* copy) {
  auto bytes = static_cast<size_t>(clone3->arg[1]), known = std::min(bytes, sizeof *copy);
  constexpr size_t kFirstVersion = 64;
  if (bytes > kPageSize) return -E2BIG;
  if (bytes < kFirstVersion) return -EINVAL;
  char all[kPageSize];
  if (!load_structure(all, reinterpret_cast<void*>(clone3->arg[0]), bytes, clone3->stack_pointer)) return -EFAULT;
  if (std::any_of(all + known, all + bytes, [](char c) { return c; })) return -E2BIG;
  memcpy(copy, all, known);
  if ((copy->stack == 0) != (copy->stack_size == 0)) return -EINVAL;
  clone3->arg[0] = reinterpret_cast<long>(copy);
  clone3->arg[1] = static_cast<long>(known);
  return 0;
}

}  // namespace

long clone_in(ucontext_t* context, Call call) {
  clone_args arguments = {};
  if (int error = call.number == SYS_clone3 ? copy_arguments(&call, &arguments) : 0) return error;
  CloneRequest request = request_of(call);
  bool shares_memory = (request.flags & CLONE_VM) != 0;
  if (!shares_memory || (request.flags & CLONE_VFORK)) return fork_in(context, call, request);
  if (!(request.flags & CLONE_THREAD)) guard_pager()->paging().assume_other_writers();
  return clone_thread(context, call, request);
}

}  // namespace farside::preload
