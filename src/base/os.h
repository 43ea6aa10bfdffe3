// The system calls of all code that may run with the syscall guard armed or during a fault. One error convention: a
// result >= 0, or -errno; errno is neither read nor written. All calls are made by one instruction in a section of its
// own (syscall_text()), which the guard allows; libc's wrappers would be trapped. Thread-safe and async-signal-safe.
// Tests make single calls fail through base/inject.h.
#pragma once
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace farside::os {

// A system call with six arguments. The guard's allowed range is exactly the section that holds this function.
extern "C" long farside_raw_syscall(long number, long a, long b, long c, long d, long e, long f);
std::span<const std::byte> syscall_text();

template <typename... Args>
inline long call(long number, Args... args) {
  long v[6] = {};
  size_t i = 0;
  ((v[i++] = (long)(args)), ...);
  return farside_raw_syscall(number, v[0], v[1], v[2], v[3], v[4], v[5]);
}

// Whether the result of a call that returns an address is -errno.
constexpr bool is_error(long result) { return result < 0 && result > -4096; }

// Memory. map_near maps zeroed private memory; nullptr: out of memory.
void* map_near(size_t bytes);
void unmap(void* address, size_t bytes);
long mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
int munmap(void* address, size_t bytes);
// Reserves private memory at a multiple of `alignment`, a power of two. -errno: there is no room.
long map_aligned(size_t bytes, size_t alignment, int protection);
int mprotect(void* address, size_t bytes, int protection);
int madvise(void* address, size_t bytes, int advice);
long process_madvise(int pidfd, const iovec* ranges, size_t count, int advice);
long vmsplice(int pipe, const iovec* ranges, size_t count, unsigned flags);

// userfaultfd. open_userfaultfd tries the system call, then /dev/userfaultfd, then UFFD_USER_MODE_ONLY.
int open_userfaultfd(uint64_t features, uint64_t* got_features);
int uffd_register(int uffd, void* address, size_t bytes, uint64_t mode);
// Returns the number of bytes copied, possibly fewer than `bytes`, or -errno when none was. -EEXIST: the page is
// present.
long uffd_copy(int uffd, void* to, const void* from, size_t bytes, uint64_t mode);
int uffd_write_protect(int uffd, void* address, size_t bytes, bool protect);
int uffd_wake(int uffd, void* address, size_t bytes);
// UFFD_FEATURE_MOVE and UFFDIO_MOVE (Linux 6.8): moves present pages to where none are, by exchanging entries of the
// page tables; a whole huge page by exchanging one. What arrives is mapped writable. Returns the number of bytes moved,
// possibly fewer than `bytes`, or -errno when none was. -EBUSY: a forked process shares the page, or the kernel uses
// it. Linux 6.17 and later may have moved more than they report (FarSpace::move).
inline constexpr uint64_t kUffdFeatureMove = uint64_t{1} << 16;
long uffd_move(int uffd, void* to, void* from, size_t bytes);
// Whether all of the range is mapped by huge pages (PAGEMAP_SCAN, Linux 6.7). pagemap: /proc/self/pagemap. -errno.
int is_huge_mapped(int pagemap, const void* address, size_t bytes);

// Files and sockets.
ssize_t read(int fd, void* buffer, size_t bytes);
ssize_t write(int fd, const void* buffer, size_t bytes);
ssize_t readv(int fd, const iovec* pieces, int count);
ssize_t recv(int fd, void* buffer, size_t bytes, int flags);
ssize_t send(int fd, const void* buffer, size_t bytes, int flags);
ssize_t sendmsg(int fd, const msghdr* message, int flags);
ssize_t recvmsg(int fd, msghdr* message, int flags);
// As send and recv with MSG_DONTWAIT, with descriptors that are passed over a Unix socket, at most kMaxPassed.
// recv_with_fds stores those that arrive in the elements of `passed` that are -1, in order, and closes all others.
inline constexpr size_t kMaxPassed = 4;
ssize_t send_with_fds(int fd, const void* buffer, size_t bytes, std::span<const int> passed);
ssize_t recv_with_fds(int fd, void* buffer, size_t bytes, std::span<int> passed);
int open(const char* path, int flags, int mode = 0);
int close(int fd);
int pipe(int fds[2], int flags);
int fcntl(int fd, int command, long argument);
int poll(pollfd* fds, unsigned count, int timeout_ms);
int memfd_create(const char* name, unsigned flags);
// A memory file whose size stays as it is, closed by exec.
int sealed_memfd(const char* name, uint64_t bytes);
int ftruncate(int fd, off_t length);
int fallocate(int fd, int mode, off_t offset, off_t length);
// The range reads as zeros afterwards and uses no memory.
int punch_hole(int fd, uint64_t offset, uint64_t bytes);
off_t lseek(int fd, off_t offset, int whence);

// Moves fd to a high number, with close-on-exec, because programs may expect low numbers to be free. Returns the new
// descriptor; the old one is closed. On failure the old one is kept and returned.
int move_fd_high(int fd);

// Signals. A set has the kernel's format: bit n-1 is signal n.
using SignalSet = uint64_t;
constexpr SignalSet signal_bit(int signal) { return SignalSet{1} << (signal - 1); }
// how: SIG_BLOCK, SIG_UNBLOCK or SIG_SETMASK; either set may be nullptr.
int sigprocmask(int how, const SignalSet* set, SignalSet* old);

// Threads and processes.
int gettid();
uint64_t thread_cpu_ns();            // processor time of the calling thread
uint64_t process_cpu_ns();           // of all threads of the process
void name_thread(const char* name);  // the calling thread, as shown by ps and top
int getpid();
bool thread_is_gone(int process, int tid);  // no such thread in this process
int thread_count();                         // threads of this process, as /proc tells; -errno
int pidfd_open(int pid);
// A memory barrier on every running thread of the process (MEMBARRIER_CMD_PRIVATE_EXPEDITED; registered at the first
// call). -ENOSYS, or -EPERM where a seccomp filter forbids it.
int membarrier();
// Private futexes. `timeout` is relative; nullptr: none.
int futex_wait(const uint32_t* word, uint32_t expected, const timespec* timeout);
int futex_wake(const uint32_t* word, int count);
int sched_yield();
int nanosleep_ns(uint64_t ns);
[[noreturn]] void exit_group(int status);

}  // namespace farside::os
