// Wrappers of the functions of libc that fork. In handler mode system calls are trapped only during the fork, so that
// the child's far memory works before libc accesses any. Signal mode needs no wrapper.
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "base/log.h"
#include "base/thread_storage.h"
#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/special_calls.h"
#include "preload/guard/libc/wrapper.h"
#include "preload/guard/process/process.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_records.h"
#include "preload/guard/traps/user_dispatch.h"
#include "preload/heap/mappings.h"

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

namespace {

// Forks by calling `make`, whose system call is outside the guard's address range and therefore trapped.
template <typename Make>
long trapped_fork(Make make) {
  // A handler on an alternate stack in far memory: the trap runs there, and no page may be fetched during a fork.
  Pins pins(STACK_POINTER);
  stack_t stack = {};
  os::call(SYS_sigaltstack, nullptr, &stack);
  if (stack.ss_flags & SS_ONSTACK) pins.add(stack.ss_sp, stack.ss_size, true);
  // A trap whose signal is blocked ends the process: Ruby forks with all signals blocked, and a handler that blocks all
  // would make trapped calls.
  os::SignalSet all = kAllButOurs, before = 0;
  os::sigprocmask(SIG_SETMASK, &all, &before);
  int error = arm_thread(true);
  if (error) {
    os::sigprocmask(SIG_SETMASK, &before, nullptr);
    log(LogLevel::kError,
        "fork is refused: this kernel or container cannot trap it (error {}), and the child would lose far memory",
        -error);
    errno = ENOSYS;
    return -1;
  }
  inherit_far_memory(true);
  long child = make();
  if (child == 0) {
    before = without_ours(before);
    os::sigprocmask(SIG_SETMASK, &before, nullptr);
    return child;
  }
  inherit_far_memory(false);
  this_guard().selector = kSelectorAllow;
  leave_alternate_stack();
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
  return child;
}

bool is_fork(long number, long argument) {
  uint64_t flags = CLONE_VM;  // arguments that cannot be read, which the kernel refuses
  if (number == SYS_clone3) {
    load_structure(&flags, reinterpret_cast<void*>(argument), sizeof flags, STACK_POINTER);
    return !(flags & CLONE_VM);
  }
  return number == SYS_fork || (number == SYS_clone && !(argument & CLONE_VM));
}

}  // namespace

EXPORT pid_t fork() {
  static const auto real = libc_function<decltype(fork)>("fork");
  if (!guard_pager() || !in_handler_mode()) return real();
  return static_cast<pid_t>(trapped_fork([] { return static_cast<long>(real()); }));
}

// The other functions of libc that fork.
EXPORT pid_t _Fork() {
  static const auto real = libc_function<decltype(_Fork)>("_Fork");
  if (!guard_pager() || !in_handler_mode()) return real();
  return static_cast<pid_t>(trapped_fork([] { return static_cast<long>(real()); }));
}

EXPORT int daemon(int keeps_directory, int keeps_streams) {
  static const auto real = libc_function<decltype(daemon)>("daemon");
  if (!guard_pager() || !in_handler_mode()) return real(keeps_directory, keeps_streams);
  return static_cast<int>(trapped_fork([&] { return static_cast<long>(real(keeps_directory, keeps_streams)); }));
}

EXPORT int forkpty(int* leader, char* name, const termios* settings, const winsize* size) {
  static const auto real = libc_function<decltype(forkpty)>("forkpty");
  if (!guard_pager() || !in_handler_mode()) return real(leader, name, settings, size);
  return static_cast<int>(trapped_fork([&] { return static_cast<long>(real(leader, name, settings, size)); }));
}

namespace {

// What a child that shares memory and thread pointer runs, with thread-local variables of its own.
struct SharingChild {
  OwnStorage* own;
  int (*run)(void*);
  void* argument;
};

int run_with_own_storage(void* start) {
  auto* child = static_cast<SharingChild*>(start);
  use_own_storage(child->own);
  return child->run(child->argument);
}

// Shares memory with a child: make(run, argument). When it ends, the kernel clears a word, and waits for no page.
template <typename Make>
long clone_sharing_memory(int flags, void* word, int (*run)(void*), void* argument, Make make) {
  bool clears = (flags & CLONE_CHILD_CLEARTID) && is_far(word);
  bool shares_storage = run && !(flags & (CLONE_SETTLS | CLONE_VFORK));
  if (!clears && !shares_storage) return make(run, argument);
  ThreadRecord* record = take_record();
  if (clears) keep_near(record, Kept::kWord, reinterpret_cast<uint64_t>(word), sizeof(pid_t));
  OwnStorage* own = shares_storage ? make_own_storage(record, thread_pointer()) : nullptr;
  auto* start = reinterpret_cast<SharingChild*>(record->stack);  // which no handler uses
  *start = {own, run, argument};
  long child = own ? make(run_with_own_storage, start) : make(run, argument);
  record->tid.store(child > 0 ? static_cast<int>(child) : 0);
  return child;
}

}  // namespace

EXPORT int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) {
  static const auto real = libc_function<decltype(clone)>("clone");
  va_list rest;
  va_start(rest, argument);
  auto* parent_number = va_arg(rest, void*);
  auto* storage = va_arg(rest, void*);
  auto* word = va_arg(rest, void*);
  va_end(rest);
  auto make = [&](int (*begin)(void*), void* start) {
    return static_cast<long>(real(begin, stack, flags, start, parent_number, storage, word));
  };
  if (!guard_pager() || !in_handler_mode()) return static_cast<int>(make(run, argument));
  if ((flags & CLONE_VM) && !(flags & CLONE_THREAD)) guard_pager()->paging().assume_other_writers();
  long child = flags & CLONE_VM ? clone_sharing_memory(flags, word, run, argument, make)
                                : trapped_fork([&] { return make(run, argument); });
  return static_cast<int>(child);
}

EXPORT long syscall(long number, ...) {
  static const auto real = libc_function<decltype(syscall)>("syscall");
  va_list rest;
  va_start(rest, number);
  long a[6];
  for (long& argument : a) argument = va_arg(rest, long);
  va_end(rest);
  auto make = [&] { return real(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
  if (!guard_pager() || !in_handler_mode()) return make();
  if (is_fork(number, a[0])) return trapped_fork(make);
  long result;
  Call call = {number, {a[0], a[1], a[2], a[3], a[4], a[5]}, STACK_POINTER};
  // Only calls that concern Farside's descriptors or far space; the kernel can execute all others in this mode.
  return special_call(call, &result) ? with_errno(result) : make();
}
