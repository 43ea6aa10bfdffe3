#include "preload/guard/special_calls.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "preload/guard/exec.h"
#include "preload/guard/futexes.h"
#include "preload/guard/ioctls.h"
#include "preload/guard/near_pieces.h"
#include "preload/guard/proc_entries.h"
#include "preload/guard/process.h"
#include "preload/guard/syscall_table.h"
#include "preload/guard/thread_pointer.h"
#include "preload/heap/mappings.h"
#include "preload/heap/program_break.h"

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

// The pages of a pipe stay what they were when they entered it, so far memory is copied first.
long vmsplice_call(const Call& call) {
  auto* program = reinterpret_cast<const iovec*>(call.arg[1]);
  auto count = static_cast<size_t>(call.arg[2]);
  if (count > IOV_MAX || !is_readable(program, count * sizeof(iovec), call.stack_pointer)) return issue(call);
  Pins pins(call.stack_pointer);
  PieceLists lists;
  if (!lists.make(pins, count)) return -ENOMEM;
  bool reads = (os::fcntl(static_cast<int>(call.arg[0]), F_GETFL, 0) & O_ACCMODE) == O_RDONLY;
  size_t taken = has_invalid_piece(program, count) ? 0 : Cursor(program, count).next(lists.from, count, kMaxWhole);
  if (!any_far(lists.from, taken) && !is_far(program)) return issue(call);
  NearPieces near(pins, reads ? Use::kOut : Use::kIn);
  if (long error = near.take(lists.from, lists.to, taken, kPageSize)) return error;
  Call part = call;
  part.arg[1] = reinterpret_cast<long>(lists.to);
  part.arg[2] = static_cast<long>(taken);
  long r = issue(part);
  return r > 0 ? static_cast<long>(near.store(0, taken, static_cast<uint64_t>(r))) : r;
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

namespace {

// ---- Calls about mappings ----

constexpr int kPidfdSelfThread = -10000, kPidfdSelf = -10001;  // Linux 6.14

// Flags of an mmap. musl reserves the stacks of threads by PROT_NONE. The kernel ends a program if it cannot write a
// signal frame, and so ends one whose stack is far and absent. Heaps reserve more at a time.
int mmap_flags(const Call& call) {
  constexpr long kLargestStack = 16 * kMiB;
  auto flags = static_cast<int>(call.arg[3]);
  bool may_be_stack = is_static_program() && call.arg[2] == PROT_NONE && call.arg[1] <= kLargestStack &&
                      (flags & MAP_ANONYMOUS) && !(flags & MAP_FIXED);
  return may_be_stack ? flags | MAP_STACK : flags;
}

long mincore_call(const Call& call) {
  auto* resident = reinterpret_cast<unsigned char*>(call.arg[2]);
  auto bytes = static_cast<size_t>(call.arg[1]);
  Pins pins(call.stack_pointer);
  if (bytes <= pin_limit() * kPageSize) pins.add(resident, align_up(bytes, kPageSize) / kPageSize, true);
  return far_mincore(reinterpret_cast<void*>(call.arg[0]), bytes, resident);
}

// ---- process_madvise of the process itself ----

// A line "Pid:" of the descriptor's entry in /proc names the process as the mount of /proc does, like its link "self".
bool is_self(int pidfd) {
  if (pidfd == kPidfdSelf || pidfd == kPidfdSelfThread) return true;
  char path[48] = "/proc/self/fdinfo/", text[1024], self[24];
  *std::to_chars(path + strlen(path), path + sizeof path - 1, pidfd).ptr = 0;
  long own = os::call(SYS_readlink, "/proc/self", self, sizeof self - 1);
  int fd = os::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || own <= 0) return false;
  long read = os::call(SYS_read, fd, text, sizeof text - 1);
  os::close(fd);
  self[own] = 0;
  text[read > 0 ? read : 0] = 0;
  const char* line = strstr(text, "\nPid:");
  return line && atoi(line + 5) == atoi(self);
}

bool any_far(const iovec* pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (is_far(pieces[i].iov_base)) return true;
  }
  return false;
}

// Copies of the program's pieces. The kernel has the last word on how many there may be.
constexpr size_t kMaxPieces = 1024;
bool read_pieces(const Call& call, iovec* copy, size_t count) {
  Pins pins(call.stack_pointer);
  auto* pieces = reinterpret_cast<void*>(call.arg[1]);
  pins.add(pieces, count * sizeof(iovec), false);
  iovec from = {pieces, count * sizeof(iovec)}, to = {copy, count * sizeof(iovec)};
  return os::call(SYS_process_vm_readv, os::getpid(), &to, 1, &from, 1, 0) == static_cast<long>(to.iov_len);
}

// As the kernel: bytes up to the first piece that is refused, or its error if it is the first.
long advise_pieces(const iovec* pieces, size_t count, int advice) {
  long done = 0;
  for (size_t i = 0; i < count; i++) {
    long r = far_madvise(pieces[i].iov_base, pieces[i].iov_len, advice);
    if (r != 0) return done > 0 ? done : r;
    done += static_cast<long>(pieces[i].iov_len);
  }
  return done;
}

long process_madvise_call(const Call& call) {
  auto count = static_cast<size_t>(call.arg[2]);
  if (count == 0 || count > kMaxPieces) return issue(call);
  auto* pieces = static_cast<iovec*>(os::map_near(kMaxPieces * sizeof(iovec)));
  if (!pieces) return -ENOMEM;
  long result = read_pieces(call, pieces, count) ? 0 : -EFAULT;
  bool own = result == 0 && any_far(pieces, count) && is_self(static_cast<int>(call.arg[0]));
  Call copy = call;
  copy.arg[1] = reinterpret_cast<long>(pieces);
  if (result == 0 && !own) result = issue(copy);
  if (own) {
    // The kernel looks at all but the pieces.
    iovec nothing = {pieces[0].iov_base, 0};
    nothing.iov_base = reinterpret_cast<void*>(align_down(reinterpret_cast<uint64_t>(nothing.iov_base), kPageSize));
    result = os::call(SYS_process_madvise, call.arg[0], &nothing, 1, call.arg[3], call.arg[4]);
    if (result == 0) result = advise_pieces(pieces, count, static_cast<int>(call.arg[3]));
  }
  os::unmap(pieces, kMaxPieces * sizeof(iovec));
  return result;
}

bool mapping_call(const Call& call, long* result) {
  const long* a = call.arg;
  auto* address = reinterpret_cast<void*>(a[0]);
  auto bytes = static_cast<size_t>(a[1]);
  switch (call.number) {
    case SYS_mmap:
      *result = far_mmap(address, bytes, static_cast<int>(a[2]), mmap_flags(call), static_cast<int>(a[4]), a[5]);
      return true;
    case SYS_munmap:
      *result = far_munmap(address, bytes);
      return true;
    case SYS_mremap:
      *result =
          far_mremap(address, bytes, static_cast<size_t>(a[2]), static_cast<int>(a[3]), reinterpret_cast<void*>(a[4]));
      return true;
    case SYS_pkey_mprotect:
      *result = far_pkey_mprotect(address, bytes, static_cast<int>(a[2]), static_cast<int>(a[3]));
      return true;
    case SYS_mprotect:
      *result = far_mprotect(address, bytes, static_cast<int>(a[2]));
      return true;
    case SYS_madvise:
      *result = far_madvise(address, bytes, static_cast<int>(a[2]));
      return true;
    case SYS_brk:
      *result = far_brk(address);
      return true;
    case SYS_process_madvise:
      *result = process_madvise_call(call);
      return true;
    case kMseal:
      *result = far_mseal(address, bytes, static_cast<unsigned long>(a[2]));
      return true;
    case SYS_mincore:
      *result = mincore_call(call);
      return true;
    case SYS_msync:
      *result = far_msync(address, bytes, static_cast<int>(a[2]));
      return true;
    case SYS_mlock:
    case SYS_mlock2:
    case SYS_munlock:
    case SYS_mlockall:
    case SYS_munlockall:
      *result = far_mlock(call.number, address, bytes, a[2]);
      return true;
    default:
      return false;
  }
}

// ---- Calls that the kernel permits only to a process of one thread (user namespaces), or that change what the calling
// thread may do: Farside's threads end before, and new ones inherit the result. ----

// Nothing may be pinned meanwhile: a fork that waits for the same lock keeps pages from being fetched.
long issue_without_threads(const Call& call) {
  SignalsBlocked blocked;
  return guard_pager()->call_without_threads([&] { return issue(call); });
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
  if (r == 0 && last_threads) guard_pager()->keep_threads();
  return r;
}

bool identity_call(const Call& call, long* result) {
  switch (call.number) {
    case SYS_unshare:
      *result = unshare_call(call);
      return true;
    case SYS_setns:
      *result = issue(call);
      if (*result == -EINVAL) *result = issue_without_threads(call);
      return true;
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setfsuid:
    case SYS_setfsgid:
    case SYS_setgroups:
    case SYS_capset:
      *result = table_call(call, issue_without_threads);
      return true;
    default:
      return false;
  }
}

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

}  // namespace

bool special_call(const Call& call, long* result) {
  if (is_static_program() && own_executable_call(call, result)) return true;
  if (futex_call(call, result) || mapping_call(call, result)) return true;
  if (descriptor_call(call, result) || identity_call(call, result)) return true;
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
    case SYS_exit_group:
      report_at_exit();
      os::exit_group(static_cast<int>(call.arg[0]));
    default:
      return false;
  }
}

}  // namespace farside::preload
