// Wrappers of frequent libc functions, which replace those of libc in the program. In signal mode they save the trap
// (1.3 us): they issue their system calls from the address range that is not trapped. In handler mode nothing is
// trapped, and these wrappers alone protect Farside's descriptors and place mappings in far space. Blocking functions
// remain cancellation points.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>

#include "preload/guard/calls/descriptor_calls.h"
#include "preload/guard/calls/guarded_call.h"
#include "preload/guard/libc/wrapper.h"
#include "preload/guard/process/process.h"
#include "preload/guard/thread/pins.h"
#include "preload/heap/mappings.h"
#include "preload/heap/near_stack.h"
#include "preload/heap/program_break.h"

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

namespace {

// Makes the calling thread asynchronously cancellable while one exists, as libc does in its blocking functions.
class CancellationPoint {
 public:
  CancellationPoint() {
    if (!__libc_single_threaded) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before_);
  }
  ~CancellationPoint() {
    if (before_ >= 0) pthread_setcanceltype(before_, nullptr);
  }
  CancellationPoint(const CancellationPoint&) = delete;
  CancellationPoint& operator=(const CancellationPoint&) = delete;

 private:
  int before_ = -1;
};

template <typename... Args>
Call make_call(uint64_t stack_pointer, long number, Args... args) {
  Call call = {number, {}, stack_pointer};
  int i = 0;
  ((call.arg[i++] = (long)(args)), ...);
  return call;
}

// Not from the address range that passes, so that it is trapped.
long trapped_call(const Call& call) {
  long result = call.number;
  register long d asm("r10") = call.arg[3];
  register long e asm("r8") = call.arg[4];
  register long f asm("r9") = call.arg[5];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(call.arg[0]), "S"(call.arg[1]), "d"(call.arg[2]), "r"(d), "r"(e), "r"(f)
               : "rcx", "r11", "memory");
  return result;
}

// On a stack that is far memory, a push could fault while the thread holds a lock of the pager. The handler of a trap
// has a near one.
long call_from_wrapper(const Call& call) {
  if (!is_far(__builtin_frame_address(0))) [[likely]]
    return guarded_call(call);
  if (!in_handler_mode()) return trapped_call(call);
  return on_near_stack(*guard_pager(), [&] { return guarded_call(call); });
}

}  // namespace

// Macros, because the stack pointer must be that of the wrapper's frame.
#define BLOCKING(number, ...)                                                            \
  do {                                                                                   \
    CancellationPoint point;                                                             \
    return with_errno(call_from_wrapper(make_call(STACK_POINTER, number, __VA_ARGS__))); \
  } while (0)
#define QUICK(number, ...) \
  return static_cast<int>(with_errno(call_from_wrapper(make_call(STACK_POINTER, number, __VA_ARGS__))))

EXPORT ssize_t read(int fd, void* buffer, size_t bytes) { BLOCKING(SYS_read, fd, buffer, bytes); }
EXPORT ssize_t write(int fd, const void* buffer, size_t bytes) { BLOCKING(SYS_write, fd, buffer, bytes); }
EXPORT ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  BLOCKING(SYS_pread64, fd, buffer, bytes, offset);
}
EXPORT ssize_t pread64(int fd, void* buffer, size_t bytes, off64_t offset) {
  BLOCKING(SYS_pread64, fd, buffer, bytes, offset);
}
EXPORT ssize_t pwrite(int fd, const void* buffer, size_t bytes, off_t offset) {
  BLOCKING(SYS_pwrite64, fd, buffer, bytes, offset);
}
EXPORT ssize_t pwrite64(int fd, const void* buffer, size_t bytes, off64_t offset) {
  BLOCKING(SYS_pwrite64, fd, buffer, bytes, offset);
}
EXPORT ssize_t readv(int fd, const iovec* pieces, int count) { BLOCKING(SYS_readv, fd, pieces, count); }
EXPORT ssize_t writev(int fd, const iovec* pieces, int count) { BLOCKING(SYS_writev, fd, pieces, count); }
EXPORT ssize_t preadv(int fd, const iovec* pieces, int count, off_t offset) {
  BLOCKING(SYS_preadv, fd, pieces, count, offset);
}
EXPORT ssize_t preadv64(int fd, const iovec* pieces, int count, off64_t offset) {
  BLOCKING(SYS_preadv, fd, pieces, count, offset);
}
EXPORT ssize_t pwritev(int fd, const iovec* pieces, int count, off_t offset) {
  BLOCKING(SYS_pwritev, fd, pieces, count, offset);
}
EXPORT ssize_t pwritev64(int fd, const iovec* pieces, int count, off64_t offset) {
  BLOCKING(SYS_pwritev, fd, pieces, count, offset);
}
EXPORT ssize_t preadv2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  BLOCKING(SYS_preadv2, fd, pieces, count, offset, 0, flags);
}
EXPORT ssize_t preadv64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
  BLOCKING(SYS_preadv2, fd, pieces, count, offset, 0, flags);
}
EXPORT ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
  BLOCKING(SYS_pwritev2, fd, pieces, count, offset, 0, flags);
}
EXPORT ssize_t pwritev64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
  BLOCKING(SYS_pwritev2, fd, pieces, count, offset, 0, flags);
}
// In handler mode the kernel would write to frames that are evicted meanwhile.
EXPORT ssize_t process_vm_readv(pid_t process, const iovec* to, unsigned long to_count, const iovec* from,
                                unsigned long from_count, unsigned long flags) {
  return with_errno(call_from_wrapper(
      make_call(STACK_POINTER, SYS_process_vm_readv, process, to, to_count, from, from_count, flags)));
}
EXPORT ssize_t process_vm_writev(pid_t process, const iovec* from, unsigned long from_count, const iovec* to,
                                 unsigned long to_count, unsigned long flags) {
  return with_errno(call_from_wrapper(
      make_call(STACK_POINTER, SYS_process_vm_writev, process, from, from_count, to, to_count, flags)));
}
EXPORT off_t lseek(int fd, off_t offset, int whence) {
  return with_errno(call_from_wrapper(make_call(STACK_POINTER, SYS_lseek, fd, offset, whence)));
}
EXPORT off64_t lseek64(int fd, off64_t offset, int whence) {
  return with_errno(call_from_wrapper(make_call(STACK_POINTER, SYS_lseek, fd, offset, whence)));
}
EXPORT ssize_t recv(int fd, void* buffer, size_t bytes, int flags) {
  BLOCKING(SYS_recvfrom, fd, buffer, bytes, flags, 0, 0);
}
EXPORT ssize_t recvfrom(int fd, void* buffer, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  BLOCKING(SYS_recvfrom, fd, buffer, bytes, flags, address, length);
}
EXPORT ssize_t send(int fd, const void* buffer, size_t bytes, int flags) {
  BLOCKING(SYS_sendto, fd, buffer, bytes, flags, 0, 0);
}
EXPORT ssize_t sendto(int fd, const void* buffer, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  BLOCKING(SYS_sendto, fd, buffer, bytes, flags, address, length);
}
EXPORT ssize_t recvmsg(int fd, msghdr* message, int flags) { BLOCKING(SYS_recvmsg, fd, message, flags); }
EXPORT ssize_t sendmsg(int fd, const msghdr* message, int flags) { BLOCKING(SYS_sendmsg, fd, message, flags); }
EXPORT int accept(int fd, sockaddr* address, socklen_t* length) { BLOCKING(SYS_accept, fd, address, length); }
EXPORT int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  BLOCKING(SYS_accept4, fd, address, length, flags);
}
EXPORT int epoll_wait(int fd, epoll_event* events, int count, int timeout) {
  BLOCKING(SYS_epoll_wait, fd, events, count, timeout);
}
EXPORT int epoll_ctl(int fd, int operation, int target, epoll_event* event) {
  QUICK(SYS_epoll_ctl, fd, operation, target, event);
}
EXPORT int poll(pollfd* fds, nfds_t count, int timeout) { BLOCKING(SYS_poll, fds, count, timeout); }
EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  auto* argument = va_arg(rest, void*);
  va_end(rest);
  QUICK(SYS_ioctl, fd, request, argument);
}
EXPORT int sched_yield() { QUICK(SYS_sched_yield, 0); }

EXPORT int close(int fd) { BLOCKING(SYS_close, fd); }
EXPORT int dup2(int from, int to) { QUICK(SYS_dup2, from, to); }
EXPORT int dup3(int from, int to, int flags) { QUICK(SYS_dup3, from, to, flags); }
EXPORT int close_range(unsigned first, unsigned last, int flags) { QUICK(SYS_close_range, first, last, flags); }
EXPORT void closefrom(int first) { guarded_close_range(first < 0 ? 0 : static_cast<unsigned>(first), ~0u, 0); }

EXPORT void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(with_errno(far_mmap(address, bytes, protection, flags, fd, offset)));
}
EXPORT void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  return reinterpret_cast<void*>(with_errno(far_mmap(address, bytes, protection, flags, fd, offset)));
}
EXPORT int munmap(void* address, size_t bytes) { return static_cast<int>(with_errno(far_munmap(address, bytes))); }
EXPORT void* mremap(void* address, size_t old_bytes, size_t new_bytes, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* new_address = flags & MREMAP_FIXED ? va_arg(rest, void*) : nullptr;
  va_end(rest);
  return reinterpret_cast<void*>(with_errno(far_mremap(address, old_bytes, new_bytes, flags, new_address)));
}
EXPORT int mprotect(void* address, size_t bytes, int protection) {
  return static_cast<int>(with_errno(far_mprotect(address, bytes, protection)));
}
EXPORT int pkey_mprotect(void* address, size_t bytes, int protection, int key) {
  return static_cast<int>(with_errno(far_pkey_mprotect(address, bytes, protection, key)));
}
EXPORT int madvise(void* address, size_t bytes, int advice) {
  return static_cast<int>(with_errno(far_madvise(address, bytes, advice)));
}
EXPORT int posix_madvise(void* address, size_t bytes, int advice) {
  if (advice == POSIX_MADV_DONTNEED) return 0;  // POSIX's form does not discard content
  return static_cast<int>(-far_madvise(address, bytes, advice));
}
EXPORT int mlock(const void* address, size_t bytes) { QUICK(SYS_mlock, address, bytes); }
EXPORT int mlock2(const void* address, size_t bytes, unsigned flags) { QUICK(SYS_mlock2, address, bytes, flags); }
EXPORT int munlock(const void* address, size_t bytes) { QUICK(SYS_munlock, address, bytes); }
EXPORT int mlockall(int flags) { QUICK(SYS_mlockall, flags); }
EXPORT int munlockall() { QUICK(SYS_munlockall, 0); }
EXPORT int mincore(void* address, size_t bytes, unsigned char* resident) {
  QUICK(SYS_mincore, address, bytes, resident);
}
EXPORT int msync(void* address, size_t bytes, int flags) { BLOCKING(SYS_msync, address, bytes, flags); }
EXPORT int mseal(void* address, size_t bytes, unsigned long flags) { QUICK(kMseal, address, bytes, flags); }
EXPORT ssize_t process_madvise(int process, const iovec* pieces, size_t count, int advice, unsigned flags) {
  return with_errno(
      call_from_wrapper(make_call(STACK_POINTER, SYS_process_madvise, process, pieces, count, advice, flags)));
}

EXPORT int getrlimit(__rlimit_resource_t resource, rlimit* limit) { QUICK(SYS_prlimit64, 0, resource, 0, limit); }
EXPORT int getrlimit64(__rlimit_resource_t resource, rlimit64* limit) { QUICK(SYS_prlimit64, 0, resource, 0, limit); }
EXPORT int setrlimit(__rlimit_resource_t resource, const rlimit* limit) { QUICK(SYS_prlimit64, 0, resource, limit, 0); }
EXPORT int setrlimit64(__rlimit_resource_t resource, const rlimit64* limit) {
  QUICK(SYS_prlimit64, 0, resource, limit, 0);
}
EXPORT int prlimit(pid_t process, __rlimit_resource resource, const rlimit* limit, rlimit* old) {
  QUICK(SYS_prlimit64, process, resource, limit, old);
}
EXPORT int prlimit64(pid_t process, __rlimit_resource resource, const rlimit64* limit, rlimit64* old) {
  QUICK(SYS_prlimit64, process, resource, limit, old);
}

static long move_break(void* wanted) { return guard_pager() ? far_brk(wanted) : os::call(SYS_brk, wanted); }

// In handler mode libc's own brk would not be trapped. Its record of the break follows, for calls from within libc.
EXPORT int brk(void* wanted) {
  static const auto record = static_cast<void**>(dlsym(RTLD_NEXT, "__curbrk"));
  long end = move_break(wanted);
  if (record) *record = reinterpret_cast<void*>(end);
  if (static_cast<uint64_t>(end) >= reinterpret_cast<uint64_t>(wanted)) return 0;
  errno = ENOMEM;
  return -1;
}
EXPORT void* sbrk(intptr_t increment) {
  auto* before = reinterpret_cast<std::byte*>(move_break(nullptr));
  return increment == 0 || brk(before + increment) == 0 ? before : reinterpret_cast<void*>(-1);
}

// ---- dlopen ----

// A library that is opened with RTLD_DEEPBIND would call libc's malloc and free, and the program Farside's, with the
// same blocks. The flag is therefore ignored, as in C libraries that have none. A jump and no call: dlopen finds its
// caller, whose search path applies, by the return address.
extern "C" __attribute__((visibility("hidden"))) void* (*farside_real_dlopen)(const char*, int);
void* (*farside_real_dlopen)(const char*, int) = nullptr;
extern "C" __attribute__((visibility("hidden"), used)) void farside_find_dlopen() {
  farside_real_dlopen = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
}
asm(R"(
  .text
  .globl dlopen
  .type dlopen,@function
  .p2align 4
dlopen:
  cmpq $0, farside_real_dlopen(%rip)
  jne 1f
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  call farside_find_dlopen
  addq $8, %rsp
  popq %rsi
  popq %rdi
1:
  andl $~8, %esi
  jmp *farside_real_dlopen(%rip)
  .size dlopen, .-dlopen
)");
static_assert(RTLD_DEEPBIND == 8);

// ---- Exits that skip destructors ----

EXPORT void _exit(int status) {
  report_at_exit();
  os::exit_group(status);
}
EXPORT void _Exit(int status) { _exit(status); }
