#include "preload/guard/calls/descriptor_calls.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>

#include <cerrno>

#include "preload/guard/calls/proc_entries.h"
#include "preload/guard/process/process.h"

namespace farside::preload {
namespace {

// Calls by which programs look which descriptors are open.
bool asks_for_own_descriptor(const Call& call) {
  const long* a = call.arg;
  switch (call.number) {
    case SYS_newfstatat: {
      auto* path = reinterpret_cast<const char*>(a[1]);
      return (a[3] & AT_EMPTY_PATH) && owns_fd(static_cast<int>(a[0])) && (!path || !*path);
    }
    case SYS_fstat:
    case SYS_fcntl:
    case SYS_dup:
      return owns_fd(static_cast<int>(a[0]));
    default:
      return false;
  }
}

}  // namespace

long guarded_close(int fd) { return owns_fd(fd) ? -EBADF : os::close(fd); }

long guarded_close_range(unsigned first, unsigned last, unsigned flags) {
  if (first > last) return -EINVAL;
  // Farside's descriptors have high numbers: close the ranges between them.
  constexpr unsigned kHighest = 65536;
  unsigned begin = first;
  for (unsigned fd = first; fd <= last && fd < kHighest; fd++) {
    if (!owns_fd(static_cast<int>(fd))) continue;
    if (fd > begin) os::call(SYS_close_range, begin, fd - 1, flags);
    begin = fd + 1;
  }
  return begin <= last ? os::call(SYS_close_range, begin, last, flags) : 0;
}

long guarded_dup(long number, int from, int to, int flags) {
  if (owns_fd(to)) return -EBUSY;
  return os::call(number, from, to, flags);
}

bool descriptor_call(const Call& call, long* result) {
  const long* a = call.arg;
  if (asks_for_own_descriptor(call)) {
    *result = -EBADF;
    return true;
  }
  switch (call.number) {
    case SYS_getdents64:
      *result = getdents_call(call);
      return true;
    case SYS_newfstatat:
    case SYS_fstat:
#ifdef SYS_stat
    case SYS_stat:
#endif
      *result = stat_call(call);
      return true;
    case SYS_statx:
      *result = statx_call(call);
      return true;
    case SYS_close:
      *result = guarded_close(static_cast<int>(a[0]));
      return true;
    case SYS_close_range:
      *result =
          guarded_close_range(static_cast<unsigned>(a[0]), static_cast<unsigned>(a[1]), static_cast<unsigned>(a[2]));
      return true;
#ifdef SYS_dup2
    case SYS_dup2:
#endif
    case SYS_dup3:
      *result = guarded_dup(call.number, static_cast<int>(a[0]), static_cast<int>(a[1]), static_cast<int>(a[2]));
      return true;
    default:
      return false;
  }
}

}  // namespace farside::preload
