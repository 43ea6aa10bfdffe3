#include "base/os.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "base/inject.h"

// The only system call instruction. Its section is the range that the syscall guard allows, so nothing else may be in
// it.
#if defined(__x86_64__)
asm(R"(
  .section farside_syscalls,"ax",@progbits
  .globl farside_raw_syscall
  .hidden farside_raw_syscall
  .type farside_raw_syscall,@function
farside_raw_syscall:
  .cfi_startproc
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  ret
  .cfi_endproc
  .size farside_raw_syscall, .-farside_raw_syscall
  .previous
)");
#elif defined(__aarch64__)
asm(R"(
  .section farside_syscalls,"ax",@progbits
  .globl farside_raw_syscall
  .hidden farside_raw_syscall
  .type farside_raw_syscall,%function
farside_raw_syscall:
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  ret
  .size farside_raw_syscall, .-farside_raw_syscall
  .previous
)");
#else
#error "Farside runs on x86-64 and arm64"
#endif

extern "C" __attribute__((visibility("hidden"))) const std::byte __start_farside_syscalls;
extern "C" __attribute__((visibility("hidden"))) const std::byte __stop_farside_syscalls;

namespace farside::os {

std::span<const std::byte> syscall_text() { return {&__start_farside_syscalls, &__stop_farside_syscalls}; }

// The thread sanitizer does not see the calls that map and unmap: what one thread has used and unmapped, and another
// one maps at the same address, would be a race.
#ifdef __SANITIZE_THREAD__
static std::atomic<unsigned> g_unmapped{0};
static void before_unmapping() { g_unmapped.fetch_add(1, std::memory_order_release); }
static void after_mapping() { g_unmapped.load(std::memory_order_acquire); }
#else
static void before_unmapping() {}
static void after_mapping() {}
#endif

void* map_near(size_t bytes) {
  if (inject::fails("map_near")) return nullptr;
  long r = call(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  after_mapping();
  if (is_error(r)) return nullptr;
  call(SYS_madvise, r, bytes, MADV_DONTDUMP);  // a core of the program does not need it
  return reinterpret_cast<void*>(r);
}
void unmap(void* address, size_t bytes) { munmap(address, bytes); }
long mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  long r = call(SYS_mmap, address, bytes, protection, flags, fd, offset);
  after_mapping();
  return r;
}
int munmap(void* address, size_t bytes) {
  before_unmapping();
  return call(SYS_munmap, address, bytes);
}
long map_aligned(size_t bytes, size_t alignment, int protection) {
  long mapped = mmap(nullptr, bytes + alignment, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (is_error(mapped)) return mapped;
  auto begin = static_cast<uint64_t>(mapped), base = align_up(begin, alignment);
  if (base > begin) munmap(reinterpret_cast<void*>(begin), base - begin);
  munmap(reinterpret_cast<void*>(base + bytes), alignment - (base - begin));
  return static_cast<long>(base);
}
int mprotect(void* address, size_t bytes, int protection) { return call(SYS_mprotect, address, bytes, protection); }
int madvise(void* address, size_t bytes, int advice) { return call(SYS_madvise, address, bytes, advice); }
long process_madvise(int pidfd, const iovec* ranges, size_t count, int advice) {
  return call(SYS_process_madvise, pidfd, ranges, count, advice, 0);
}
long vmsplice(int pipe, const iovec* ranges, size_t count, unsigned flags) {
  if (inject::fails("vmsplice")) return -ENOMEM;
  return call(SYS_vmsplice, pipe, ranges, count, flags);
}

static int enable_uffd(int fd, uint64_t features, uint64_t* got_features) {
  uffdio_api api = {UFFD_API, features, 0};
  int r = call(SYS_ioctl, fd, UFFDIO_API, &api);
  if (r < 0) {
    close(fd);
    return r;
  }
  if (got_features) *got_features = api.features;
  return fd;
}

int open_userfaultfd(uint64_t features, uint64_t* got_features) {
  if (inject::fails("open_userfaultfd")) return -EPERM;
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  int fd = call(SYS_userfaultfd, kFlags);
  if (fd < 0) {
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
      fd = call(SYS_ioctl, device, USERFAULTFD_IOC_NEW, kFlags);
      close(device);
    }
  }
  if (fd < 0) fd = call(SYS_userfaultfd, kFlags | UFFD_USER_MODE_ONLY);
  return fd < 0 ? fd : enable_uffd(fd, features, got_features);
}

int uffd_register(int uffd, void* address, size_t bytes, uint64_t mode) {
  uffdio_register r = {{reinterpret_cast<uint64_t>(address), bytes}, mode, 0};
  return call(SYS_ioctl, uffd, UFFDIO_REGISTER, &r);
}
long uffd_copy(int uffd, void* to, const void* from, size_t bytes, uint64_t mode) {
  if (inject::fails("uffd_copy")) return -EAGAIN;
  uffdio_copy c = {reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, mode, 0};
  long r = call(SYS_ioctl, uffd, UFFDIO_COPY, &c);
  return c.copy > 0 ? c.copy : (r < 0 ? r : c.copy);
}
int uffd_write_protect(int uffd, void* address, size_t bytes, bool protect) {
  uffdio_writeprotect w = {{reinterpret_cast<uint64_t>(address), bytes}, protect ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
  return call(SYS_ioctl, uffd, UFFDIO_WRITEPROTECT, &w);
}
long uffd_move(int uffd, void* to, void* from, size_t bytes) {
  struct Move {  // struct uffdio_move; not in the headers of older kernels
    uint64_t to, from, bytes, mode;
    int64_t moved;
  };
  if (inject::fails("uffd_move")) return -EBUSY;
  Move m = {reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes, 0, 0};
  long r = call(SYS_ioctl, uffd, _IOWR(UFFDIO, 0x05, Move), &m);
  if (inject::fails("uffd_move:unreported")) return -EEXIST;
  return m.moved > 0 ? m.moved : (r < 0 ? r : m.moved);
}
int is_huge_mapped(int pagemap, const void* address, size_t bytes) {
  struct Region {  // struct page_region; not in the headers of older kernels, nor struct pm_scan_arg
    uint64_t begin, end, categories;
  };
  struct Scan {
    uint64_t size, flags, begin, end, walk_end, regions, region_count, max_pages, inverted, all_of, any_of, returned;
  };
  constexpr uint64_t kPageIsHuge = 1 << 6;
  Region region = {};
  Scan scan = {};
  scan.size = sizeof scan;
  scan.begin = reinterpret_cast<uint64_t>(address);
  scan.end = scan.begin + bytes;
  scan.regions = reinterpret_cast<uint64_t>(&region);
  scan.region_count = 1;
  scan.all_of = scan.returned = kPageIsHuge;
  long r = call(SYS_ioctl, pagemap, _IOWR('f', 16, Scan), &scan);
  if (r < 0) return static_cast<int>(r);
  return r == 1 && region.begin == scan.begin && region.end == scan.end;
}
int uffd_wake(int uffd, void* address, size_t bytes) {
  uffdio_range r = {reinterpret_cast<uint64_t>(address), bytes};
  return call(SYS_ioctl, uffd, UFFDIO_WAKE, &r);
}

ssize_t read(int fd, void* buffer, size_t bytes) { return call(SYS_read, fd, buffer, bytes); }
ssize_t write(int fd, const void* buffer, size_t bytes) { return call(SYS_write, fd, buffer, bytes); }
ssize_t readv(int fd, const iovec* pieces, int count) { return call(SYS_readv, fd, pieces, count); }
ssize_t recv(int fd, void* buffer, size_t bytes, int flags) {
  return call(SYS_recvfrom, fd, buffer, bytes, flags, 0, 0);
}
ssize_t send(int fd, const void* buffer, size_t bytes, int flags) {
  return call(SYS_sendto, fd, buffer, bytes, flags | MSG_NOSIGNAL, 0, 0);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return call(SYS_sendmsg, fd, message, flags | MSG_NOSIGNAL);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) { return call(SYS_recvmsg, fd, message, flags); }

ssize_t send_with_fds(int fd, const void* buffer, size_t bytes, std::span<const int> passed) {
  iovec piece = {const_cast<void*>(buffer), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassed * sizeof(int))] = {};
  msghdr message = {nullptr, 0, &piece, 1, control, CMSG_SPACE(passed.size_bytes()), 0};
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(passed.size_bytes());
  memcpy(CMSG_DATA(c), passed.data(), passed.size_bytes());
  return os::sendmsg(fd, &message, MSG_DONTWAIT);
}

ssize_t recv_with_fds(int fd, void* buffer, size_t bytes, std::span<int> passed) {
  iovec piece = {buffer, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassed * sizeof(int))];
  msghdr message = {nullptr, 0, &piece, 1, control, sizeof control, 0};
  ssize_t received = os::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received <= 0) return received;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int one;
      memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
      auto place = std::find(passed.begin(), passed.end(), -1);
      if (place != passed.end()) *place = one;
      else os::close(one);
    }
  }
  return received;
}

int open(const char* path, int flags, int mode) { return call(SYS_openat, AT_FDCWD, path, flags, mode); }
int close(int fd) { return call(SYS_close, fd); }
int pipe(int fds[2], int flags) { return call(SYS_pipe2, fds, flags); }
int fcntl(int fd, int command, long argument) { return call(SYS_fcntl, fd, command, argument); }
int poll(pollfd* fds, unsigned count, int timeout_ms) {
  timespec t = {timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
  return call(SYS_ppoll, fds, count, timeout_ms < 0 ? nullptr : &t, 0, 0);
}
int memfd_create(const char* name, unsigned flags) { return call(SYS_memfd_create, name, flags); }
int ftruncate(int fd, off_t length) { return call(SYS_ftruncate, fd, length); }
int fallocate(int fd, int mode, off_t offset, off_t length) { return call(SYS_fallocate, fd, mode, offset, length); }
int sealed_memfd(const char* name, uint64_t bytes) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return fd;
  int r = ftruncate(fd, static_cast<off_t>(bytes));
  if (r == 0) r = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  if (r == 0) return fd;
  close(fd);
  return r;
}
int punch_hole(int fd, uint64_t offset, uint64_t bytes) {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                   static_cast<off_t>(bytes));
}
off_t lseek(int fd, off_t offset, int whence) { return call(SYS_lseek, fd, offset, whence); }

namespace {

// The limit on open files while a descriptor moves. A soft limit below kWanted is raised for the moment, so that the
// descriptor is not one of those that the program may use. Not raised where another thread has raised it, or had when
// it forked this process.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &before_);
    rlimit wanted = {std::min<rlim_t>(kWanted, before_.rlim_max), before_.rlim_max};
    if (before_.rlim_cur >= wanted.rlim_cur || g_raised.exchange(true)) return;
    raised_ = call(SYS_prlimit64, 0, RLIMIT_NOFILE, &wanted, 0) == 0;
    if (raised_) top_ = wanted.rlim_cur;
    else g_raised.store(false);
  }
  ~DescriptorLimit() {
    if (!raised_) return;
    rlimit now = before_;  // the program may have changed it meanwhile
    call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &now);
    if (now.rlim_cur == top_ && now.rlim_max == before_.rlim_max) call(SYS_prlimit64, 0, RLIMIT_NOFILE, &before_, 0);
    g_raised.store(false);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  // transport/own_fds.h has one bit for each number below 65536.
  long top() const { return static_cast<long>(std::min<rlim_t>(raised_ ? top_ : before_.rlim_cur, 65536)); }

 private:
  static constexpr rlim_t kWanted = 4096;
  static inline std::atomic<bool> g_raised{false};
  rlimit before_ = {1024, 1024};
  rlim_t top_ = 0;
  bool raised_ = false;
};

}  // namespace

// Searches upwards from 256 below the limit, or from half of a small limit.
int move_fd_high(int fd) {
  int high = -EINVAL;
  for (int tries = 0; tries < 100 && high == -EINVAL; tries++) {  // another thread has lowered what it had raised
    DescriptorLimit limit;
    long top = limit.top(), lowest = top > 512 ? top - 256 : top / 2;
    high = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
  }
  if (high < 0) return fd;
  close(fd);
  return high;
}

int sigprocmask(int how, const SignalSet* set, SignalSet* old) {
  return call(SYS_rt_sigprocmask, how, set, old, sizeof(SignalSet));
}
static uint64_t cpu_ns(int clock) {
  timespec t = {};
  call(SYS_clock_gettime, clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}
uint64_t thread_cpu_ns() { return cpu_ns(CLOCK_THREAD_CPUTIME_ID); }
uint64_t process_cpu_ns() { return cpu_ns(CLOCK_PROCESS_CPUTIME_ID); }
int gettid() { return call(SYS_gettid); }
int getpid() { return call(SYS_getpid); }
bool thread_is_gone(int process, int tid) { return call(SYS_tgkill, process, tid, 0) == -ESRCH; }
int pidfd_open(int pid) { return call(SYS_pidfd_open, pid, 0); }
int membarrier() {
  constexpr long kBarrier = 1 << 3, kRegister = 1 << 4;  // MEMBARRIER_CMD_(REGISTER_)PRIVATE_EXPEDITED
  auto r = static_cast<int>(call(SYS_membarrier, kBarrier, 0, 0));
  if (r != -EPERM) return r;
  r = static_cast<int>(call(SYS_membarrier, kRegister, 0, 0));
  return r < 0 ? r : static_cast<int>(call(SYS_membarrier, kBarrier, 0, 0));
}
int thread_count() {
  struct stat directory;
  int r = call(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &directory, 0);
  return r < 0 ? r : static_cast<int>(directory.st_nlink) - 2;
}
int futex_wait(const uint32_t* word, uint32_t expected, const timespec* timeout) {
  return call(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout, 0, 0);
}
int futex_wake(const uint32_t* word, int count) { return call(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, 0, 0, 0); }
void name_thread(const char* name) { call(SYS_prctl, PR_SET_NAME, name); }
int sched_yield() { return call(SYS_sched_yield); }
int nanosleep_ns(uint64_t ns) {
  timespec t = {static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  return call(SYS_nanosleep, &t, 0);
}
void exit_group(int status) {
  for (;;) call(SYS_exit_group, status);
}

}  // namespace farside::os
