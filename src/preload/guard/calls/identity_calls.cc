#include "preload/guard/calls/identity_calls.h"

#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/sync.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/guard/thread/pins.h"

namespace farside::preload {
namespace {

// Nothing may be pinned meanwhile: a fork that waits for the same lock keeps pages from being fetched.
long issue_without_threads(const Call& call) {
  SignalsBlocked blocked;
  return guard_pager()->evictors().call_without_threads([&] { return issue(call); });
}

// Most kinds are permitted to a process of several threads. After a change of the process or time namespace the kernel
// refuses new threads, so those of Farside must stay.
long unshare_call(const Call& call) {
  constexpr long kNoMoreThreads = CLONE_NEWPID | CLONE_NEWTIME;
  bool last_threads = (call.arg[0] & kNoMoreThreads) != 0;
  long r = issue(call);
  if (r == -EINVAL) {
    Call part = call;
    part.arg[0] &= ~kNoMoreThreads;
    r = issue_without_threads(part);
    part.arg[0] = call.arg[0] & kNoMoreThreads;
    if (r == 0 && last_threads) r = issue_uninterrupted(part);  // what was done must not be repeated
  }
  if (r == 0 && last_threads) guard_pager()->evictors().keep_threads();
  return r;
}

// The user, the groups or the capabilities, of each thread by itself.
bool sets_identity(long number) {
  switch (number) {
    case SYS_setuid:
    case SYS_setreuid:
    case SYS_setresuid:
    case SYS_setfsuid:
    case SYS_setgid:
    case SYS_setregid:
    case SYS_setresgid:
    case SYS_setfsgid:
    case SYS_setgroups:
    case SYS_capset:
      return true;
    default:
      return false;
  }
}

// Whether the process may not be able to reach the memory server afterwards, or to start a thread: by its root
// directory, its user, its namespaces or a filter of its calls.
bool takes_rights(const Call& call) {
  constexpr long kLandlockRestrictSelf = 446;
  switch (call.number) {
    case SYS_prctl:
      return call.arg[0] == PR_SET_SECCOMP;
    case SYS_seccomp:
    case kLandlockRestrictSelf:
    case SYS_chroot:
    case SYS_pivot_root:
    case SYS_unshare:
    case SYS_setns:
      return true;
    default:
      return sets_identity(call.number);
  }
}

}  // namespace

bool identity_call(const Call& call, long* result) {
  if (!takes_rights(call)) return false;
  guard_pager()->evictors().start_if_deferred();
  switch (call.number) {
    case SYS_unshare:
      *result = unshare_call(call);
      return true;
    case SYS_setns:
      *result = issue(call);
      if (*result == -EINVAL) *result = issue_without_threads(call);
      return true;
    default:
      if (!sets_identity(call.number)) return false;
      *result = table_call(call, issue_without_threads);
      return true;
  }
}

}  // namespace farside::preload
