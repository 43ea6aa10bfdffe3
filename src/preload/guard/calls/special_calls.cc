#include "preload/guard/calls/special_calls.h"

#include <sys/syscall.h>

#include <atomic>
#include <cerrno>

#include "base/log.h"
#include "preload/guard/calls/descriptor_calls.h"
#include "preload/guard/calls/exec.h"
#include "preload/guard/calls/futexes.h"
#include "preload/guard/calls/identity_calls.h"
#include "preload/guard/calls/ioctls.h"
#include "preload/guard/calls/limit_calls.h"
#include "preload/guard/calls/mapping_calls.h"
#include "preload/guard/calls/proc_entries.h"
#include "preload/guard/calls/vmsplice.h"
#include "preload/guard/process/process.h"
#include "preload/guard/thread/thread_pointer.h"

namespace farside::preload {
namespace {

void refuse(const char* what, std::atomic<bool>& warned) {
  if (warned.exchange(true)) return;
  log(LogLevel::kWarning,
      "{} is refused in signal mode, since the kernel would access far memory asynchronously; run with "
      "--fault=handler",
      what);
}

// In these interfaces kernel threads access the program's memory outside of its system calls.
long asynchronous_io(const Call& call) {
  static std::atomic<bool> warned_uring{false}, warned_aio{false};
  if (call.number == SYS_io_uring_setup) refuse("io_uring", warned_uring);
  else refuse("asynchronous I/O (io_setup)", warned_aio);
  return -ENOSYS;
}

}  // namespace

bool special_call(const Call& call, long* result) {
  if (is_static_program() && own_executable_call(call, result)) return true;
  if (futex_call(call, result) || mapping_call(call, result)) return true;
  if (descriptor_call(call, result) || identity_call(call, result) || limit_call(call, result)) return true;
  switch (call.number) {
    case SYS_ioctl:
      *result = ioctl_call(call);
      return true;
    case SYS_lseek:
      *result = seek_call(call);
      return true;
    case SYS_execve:
    case SYS_execveat:
      *result = guarded_exec(call);
      return true;
    case SYS_io_uring_setup:
    case SYS_io_setup:
      if (in_handler_mode()) return false;
      *result = asynchronous_io(call);
      return true;
    case SYS_vmsplice:
      *result = vmsplice_call(call);
      return true;
    case SYS_exit:
      end_thread(static_cast<int>(call.arg[0]));
      return false;
    case SYS_exit_group:
      report_at_exit();
      os::exit_group(static_cast<int>(call.arg[0]));
    default:
      return false;
  }
}

}  // namespace farside::preload
