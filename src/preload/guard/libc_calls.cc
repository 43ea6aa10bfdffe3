// Wrappers of frequent libc functions, which replace those of libc in the program. In signal mode they save the trap
// (1.3 us): they issue their system calls from the address range that is not trapped. In handler mode nothing is
// trapped, and these wrappers alone protect Farside's descriptors and place mappings in far space. Blocking functions
// remain cancellation points.
#include <dirent.h>
#include <dlfcn.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "preload/guard/exec.h"
#include "preload/guard/fork.h"
#include "preload/guard/guard.h"
#include "preload/guard/process.h"
#include "preload/guard/signals.h"
#include "preload/guard/special_calls.h"
#include "preload/guard/thread_records.h"
#include "preload/guard/traps.h"
#include "preload/heap/far_heap.h"
#include "preload/heap/mappings.h"
#include "preload/heap/program_break.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define STACK_POINTER reinterpret_cast<uint64_t>(__builtin_frame_address(0))

using namespace farside;           // NOLINT: this file only forwards
using namespace farside::preload;  // NOLINT

namespace {

long with_errno(long r) {
  if (r >= 0 || r < -4095) return r;
  errno = static_cast<int>(-r);
  return -1;
}

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

}  // namespace

// Macros, because the stack pointer must be that of the wrapper's frame.
#define BLOCKING(number, ...)                                                       \
  do {                                                                              \
    CancellationPoint point;                                                        \
    return with_errno(guarded_call(make_call(STACK_POINTER, number, __VA_ARGS__))); \
  } while (0)
#define QUICK(number, ...) \
  return static_cast<int>(with_errno(guarded_call(make_call(STACK_POINTER, number, __VA_ARGS__))))

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
EXPORT off_t lseek(int fd, off_t offset, int whence) {
  return with_errno(guarded_call(make_call(STACK_POINTER, SYS_lseek, fd, offset, whence)));
}
EXPORT off64_t lseek64(int fd, off64_t offset, int whence) {
  return with_errno(guarded_call(make_call(STACK_POINTER, SYS_lseek, fd, offset, whence)));
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
  return with_errno(guarded_call(make_call(STACK_POINTER, SYS_process_madvise, process, pieces, count, advice, flags)));
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

// ---- fork in handler mode: system calls are trapped only during the fork, so that the child's far memory works before
// libc accesses any. Signal mode needs no wrapper. ----

namespace {

// Forks by calling `make`, whose system call is outside the guard's address range and therefore trapped.
template <typename Make>
long trapped_fork(Make make) {
  // A handler on an alternate stack in far memory: the trap runs there, and no page may be fetched during a fork.
  Pins pins(STACK_POINTER);
  stack_t stack = {};
  os::call(SYS_sigaltstack, nullptr, &stack);
  if (stack.ss_flags & SS_ONSTACK) pins.add(stack.ss_sp, stack.ss_size, true);
  int error = arm_thread(true);
  if (error) {
    log(LogLevel::kError,
        "fork is refused: this kernel or container cannot trap it (error {}), and the child would lose far memory",
        -error);
    errno = ENOSYS;
    return -1;
  }
  inherit_far_memory(true);
  // A trap whose signal is blocked ends the process, and the child needs SIGBUS. Ruby forks with all signals blocked.
  os::SignalSet before = 0;
  os::sigprocmask(SIG_UNBLOCK, &kOurSignals, &before);
  long child = make();
  if (child == 0) return child;
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
  inherit_far_memory(false);
  t_guard.selector = kSelectorAllow;
  leave_alternate_stack();
  return child;
}

bool is_fork(long number, long argument) {
  if (number == SYS_clone3) return !(reinterpret_cast<const clone_args*>(argument)->flags & CLONE_VM);
  return number == SYS_fork || (number == SYS_clone && !(argument & CLONE_VM));
}

}  // namespace

EXPORT pid_t fork() {
  using Fork = pid_t (*)();
  static const auto real = reinterpret_cast<Fork>(dlsym(RTLD_NEXT, "fork"));
  if (!guard_pager() || !in_handler_mode()) return real();
  return static_cast<pid_t>(trapped_fork([] { return static_cast<long>(real()); }));
}

// The other functions of libc that fork.
EXPORT pid_t _Fork() {
  static const auto real = reinterpret_cast<pid_t (*)()>(dlsym(RTLD_NEXT, "_Fork"));
  if (!guard_pager() || !in_handler_mode()) return real();
  return static_cast<pid_t>(trapped_fork([] { return static_cast<long>(real()); }));
}

EXPORT int daemon(int keeps_directory, int keeps_streams) {
  static const auto real = reinterpret_cast<int (*)(int, int)>(dlsym(RTLD_NEXT, "daemon"));
  if (!guard_pager() || !in_handler_mode()) return real(keeps_directory, keeps_streams);
  return static_cast<int>(trapped_fork([&] { return static_cast<long>(real(keeps_directory, keeps_streams)); }));
}

EXPORT int forkpty(int* leader, char* name, const termios* settings, const winsize* size) {
  using Function = int (*)(int*, char*, const termios*, const winsize*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "forkpty"));
  if (!guard_pager() || !in_handler_mode()) return real(leader, name, settings, size);
  return static_cast<int>(trapped_fork([&] { return static_cast<long>(real(leader, name, settings, size)); }));
}

namespace {

// Shares memory with a child. When that ends, the kernel clears a word, and waits for no page.
template <typename Make>
long clone_sharing_memory(int flags, void* word, Make make) {
  if (!(flags & CLONE_CHILD_CLEARTID) || !is_far(word)) return make();
  ThreadRecord* record = take_record();
  keep_near(record, Kept::kWord, reinterpret_cast<uint64_t>(word), sizeof(pid_t));
  long child = make();
  record->tid.store(child > 0 ? static_cast<int>(child) : 0);
  return child;
}

}  // namespace

EXPORT int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) {
  using Clone = int (*)(int (*)(void*), void*, int, void*, ...);
  static const auto real = reinterpret_cast<Clone>(dlsym(RTLD_NEXT, "clone"));
  va_list rest;
  va_start(rest, argument);
  auto* parent_number = va_arg(rest, void*);
  auto* storage = va_arg(rest, void*);
  auto* word = va_arg(rest, void*);
  va_end(rest);
  auto make = [&] { return static_cast<long>(real(run, stack, flags, argument, parent_number, storage, word)); };
  if (!guard_pager() || !in_handler_mode()) return static_cast<int>(make());
  return static_cast<int>(flags & CLONE_VM ? clone_sharing_memory(flags, word, make) : trapped_fork(make));
}

EXPORT long syscall(long number, ...) {
  using Syscall = long (*)(long, ...);
  static const auto real = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
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

// ---- Signals in handler mode, where rt_sigaction is not trapped: SIGBUS must remain Farside's, for children of forks.
// ----

EXPORT int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
  using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);
  static const auto real = reinterpret_cast<Sigaction>(dlsym(RTLD_NEXT, "sigaction"));
  if (!guard_pager() || !in_handler_mode() || (signal != SIGBUS && signal != SIGSYS)) return real(signal, action, old);
  KernelSigaction wanted = {}, previous = {};
  if (action) {
    wanted = {reinterpret_cast<void*>(action->sa_sigaction), static_cast<unsigned long>(action->sa_flags), nullptr, 0};
    memcpy(&wanted.mask, &action->sa_mask, sizeof wanted.mask);
  }
  long r = guarded_sigaction(signal, action ? &wanted : nullptr, &previous, sizeof wanted.mask);
  if (old) {
    memset(old, 0, sizeof *old);
    old->sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(previous.handler);
    old->sa_flags = static_cast<int>(previous.flags);
    memcpy(&old->sa_mask, &previous.mask, sizeof previous.mask);
  }
  return static_cast<int>(with_errno(r));
}

// In handler mode the kernel knows the program's alternate stack, except during a fork.
EXPORT int sigaltstack(const stack_t* stack, stack_t* old) {
  if (!guard_pager() || in_handler_mode()) return static_cast<int>(with_errno(os::call(SYS_sigaltstack, stack, old)));
  return static_cast<int>(with_errno(guarded_sigaltstack(stack, old, STACK_POINTER)));
}

EXPORT sighandler_t signal(int number, sighandler_t handler) {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, number);
  return sigaction(number, &action, &old) == 0 ? old.sa_handler : SIG_ERR;
}

// ---- posix_spawn: until its exec, the child runs in this process's memory without Farside's handlers. All that it
// reads is near: path, arguments and environment are copied, and file actions are allocated near when they are created.
// ----

namespace {

// Searches PATH for the program, as the child would; nullptr: not found.
const char* find_in_path(const char* file, char* found, size_t room) {
  if (strchr(file, '/')) return file;
  const char* path = getenv("PATH");
  if (!path) path = "/bin:/usr/bin";
  while (*path) {
    size_t length = strcspn(path, ":");
    if (length + strlen(file) + 2 < room) {
      memcpy(found, path, length);
      found[length] = '/';
      strcpy(found + length + (length > 0), file);
      if (access(found, X_OK) == 0) return found;
    }
    path += length + (path[length] == ':');
  }
  return nullptr;
}

using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[],
                      char* const[]);

int spawn_near(Spawn real, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
               const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  NearStart start(path, arguments, environment);
  posix_spawn_file_actions_t near_actions;
  posix_spawnattr_t near_attributes;
  if (actions) near_actions = *actions;
  if (attributes) near_attributes = *attributes;
  pid_t child = 0;
  int error;
  {
    Unguarded pass;
    pass_run_fds(start.gets_run_fds());
    error = real(&child, start.path(), actions ? &near_actions : nullptr, attributes ? &near_attributes : nullptr,
                 start.arguments(), start.environment());
    pass_run_fds(true);
  }
  if (error == 0) start.note();
  if (pid && error == 0) *pid = child;
  return error;
}

}  // namespace

EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                       const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  static const auto real = reinterpret_cast<Spawn>(dlsym(RTLD_NEXT, "posix_spawn"));
  if (!guard_pager() || in_handler_mode()) return real(pid, path, actions, attributes, arguments, environment);
  return spawn_near(real, pid, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions,
                        const posix_spawnattr_t* attributes, char* const arguments[], char* const environment[]) {
  static const auto real = reinterpret_cast<Spawn>(dlsym(RTLD_NEXT, "posix_spawnp"));
  if (!guard_pager() || in_handler_mode()) return real(pid, file, actions, attributes, arguments, environment);
  char found[4096];
  const char* path = find_in_path(file, found, sizeof found);
  return path ? spawn_near(real, pid, path, actions, attributes, arguments, environment) : ENOENT;
}

#define NEAR_FILE_ACTION(name, parameters, arguments)                             \
  EXPORT int name parameters {                                                    \
    using Function = int(*) parameters;                                           \
    static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, #name)); \
    NearScope near;                                                               \
    return real arguments;                                                        \
  }
NEAR_FILE_ACTION(posix_spawn_file_actions_addopen,
                 (posix_spawn_file_actions_t * a, int fd, const char* path, int flags, mode_t mode),
                 (a, fd, path, flags, mode))
NEAR_FILE_ACTION(posix_spawn_file_actions_addclose, (posix_spawn_file_actions_t * a, int fd), (a, fd))
NEAR_FILE_ACTION(posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t * a, int fd, int to), (a, fd, to))
NEAR_FILE_ACTION(posix_spawn_file_actions_addchdir_np, (posix_spawn_file_actions_t * a, const char* path), (a, path))
NEAR_FILE_ACTION(posix_spawn_file_actions_addfchdir_np, (posix_spawn_file_actions_t * a, int fd), (a, fd))
NEAR_FILE_ACTION(posix_spawn_file_actions_addclosefrom_np, (posix_spawn_file_actions_t * a, int fd), (a, fd))
