#include "preload/guard/calls/limit_calls.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>

#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/calls/syscall_table.h"
#include "preload/heap/far_heap.h"
#include "preload/heap/limits.h"

namespace farside::preload {
namespace {

// All forms as prlimit64, of the calling process.
bool as_prlimit(const Call& call, Call* prlimit) {
  const long* a = call.arg;
  switch (call.number) {
    case SYS_prlimit64:
      *prlimit = call;
      return a[0] == 0 || a[0] == os::getpid();
    case SYS_setrlimit:
      *prlimit = {SYS_prlimit64, {0, a[0], a[1], 0, 0, 0}, call.stack_pointer};
      return true;
    case SYS_getrlimit:
      *prlimit = {SYS_prlimit64, {0, a[0], 0, a[1], 0, 0}, call.stack_pointer};
      return true;
    default:
      return false;
  }
}

rlimit with_own_hard_limit(int resource, const rlimit& kernel) {
  return {kernel.rlim_cur, std::min(kernel.rlim_max, hard_limit_of_program(resource))};
}

// The kernel's hard limit becomes higher, if it may, but not lower.
long set_soft_limit(int resource, const rlimit& wanted) {
  rlimit kernel = {};
  if (long error = os::call(SYS_prlimit64, 0, resource, nullptr, &kernel)) return error;
  if (wanted.rlim_cur > wanted.rlim_max) return -EINVAL;
  if (wanted.rlim_max > hard_limit_of_program(resource) && os::call(SYS_geteuid) != 0) return -EPERM;
  rlimit limit = {wanted.rlim_cur, std::max(wanted.rlim_max, kernel.rlim_max)};
  long error = os::call(SYS_prlimit64, 0, resource, &limit, nullptr);
  if (!error) keep_hard_limit(resource, wanted.rlim_max);
  return error;
}

long set_at_distance(int resource, const rlimit& wanted) {
  rlimit limit = limit_of_kernel(wanted);
  long error = os::call(SYS_prlimit64, 0, resource, &limit, nullptr);
  if (note_limit()) purge_always();
  return error;
}

long exchange_limit(const Call& call) {
  auto resource = static_cast<int>(call.arg[1]);
  auto* wanted = reinterpret_cast<const rlimit*>(call.arg[2]);
  auto* old = reinterpret_cast<rlimit*>(call.arg[3]);
  rlimit limit = {};
  if (wanted && read_program(&limit, wanted, sizeof limit, call.stack_pointer) < sizeof limit) return -EFAULT;
  if (old) {
    Call get = call;
    get.arg[2] = 0;
    if (long error = table_call(get)) return error;
    *old = keeps_hard_limit(resource) ? with_own_hard_limit(resource, *old) : limit_of_program(*old);
  }
  if (!wanted) return 0;
  return keeps_hard_limit(resource) ? set_soft_limit(resource, limit) : set_at_distance(resource, limit);
}

}  // namespace

bool limit_call(const Call& call, long* result) {
  Call prlimit;
  if (!as_prlimit(call, &prlimit)) return false;
  auto resource = static_cast<int>(prlimit.arg[1]);
  if (!is_program_limit(resource) && !keeps_hard_limit(resource)) return false;
  *result = exchange_limit(prlimit);
  return true;
}

}  // namespace farside::preload
