#include "preload/guard/calls/mapping_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "preload/guard/calls/near_pieces.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/heap/mappings.h"
#include "preload/heap/program_break.h"

namespace farside::preload {
namespace {

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
  int number = line ? atoi(line + 5) : 0;
  return number > 0 && (number == atoi(self) || shares_memory(number));
}

bool any_begins_far(const iovec* pieces, size_t count) {
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
  bool own = result == 0 && any_begins_far(pieces, count) && is_self(static_cast<int>(call.arg[0]));
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

}  // namespace

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

}  // namespace farside::preload
