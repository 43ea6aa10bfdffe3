#include "preload/guard/calls/limit_calls.h"

#include <sys/syscall.h>

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
    *old = limit_of_program(*old);
  }
  if (!wanted) return 0;
  limit = limit_of_kernel(limit);
  long r = os::call(SYS_prlimit64, 0, resource, &limit, nullptr);
  if (note_limit()) purge_always();
  return r;
}

}  // namespace

bool limit_call(const Call& call, long* result) {
  Call prlimit;
  if (!as_prlimit(call, &prlimit) || !is_program_limit(static_cast<int>(prlimit.arg[1]))) return false;
  *result = exchange_limit(prlimit);
  return true;
}

}  // namespace farside::preload
