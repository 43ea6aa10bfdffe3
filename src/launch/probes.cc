#include "launch/probes.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/bits.h"
#include "base/clock.h"
#include "base/os.h"
#include "transport/file/file_queue.h"

namespace farside {
namespace {

constexpr unsigned kChildSeconds = 5;
constexpr size_t kPipePages = 256;
constexpr size_t kMinPipePages = 2;  // in any pipe
constexpr int kRounds = 400;

// Runs a probe in a child process, which an alarm ends if it hangs. A child that a signal ends counts as a failure.
bool holds_in_child(bool (*probe)()) {
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    signal(SIGALRM, SIG_DFL);
    alarm(kChildSeconds);
    _exit(probe() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool closes(int fd) {
  if (fd < 0) return false;
  os::close(fd);
  return true;
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaction(signal, &action, nullptr);
}

// ---- A thread that handles its own faults; used in a child process with one thread only ----
struct PagingProbe {
  int uffd = -1;
  std::byte* page = nullptr;
  std::byte* source = nullptr;
  volatile int faults = 0;  // incremented by the handler
};
PagingProbe g_paging;

void resolve_fault(int, siginfo_t*, void*) {
  g_paging.faults = g_paging.faults + 1;
  if (g_paging.faults == 1)
    os::uffd_copy(g_paging.uffd, g_paging.page, g_paging.source, kPageSize, UFFDIO_COPY_MODE_WP);
  if (g_paging.faults == 2) os::uffd_write_protect(g_paging.uffd, g_paging.page, kPageSize, false);
  if (g_paging.faults > 2) _exit(1);
}

bool paging_probe() {
  g_paging.uffd = os::open_userfaultfd(UFFD_FEATURE_SIGBUS | UFFD_FEATURE_PAGEFAULT_FLAG_WP, nullptr);
  g_paging.page = static_cast<std::byte*>(os::map_near(kPageSize));
  g_paging.source = static_cast<std::byte*>(os::map_near(kPageSize));
  if (g_paging.uffd < 0 || !g_paging.page || !g_paging.source) return false;
  g_paging.source[7] = std::byte{42};
  uint64_t mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;
  if (os::uffd_register(g_paging.uffd, g_paging.page, kPageSize, mode) < 0) return false;
  handle(SIGBUS, resolve_fault);
  volatile std::byte* byte = g_paging.page + 7;
  bool fetched = *byte == std::byte{42} && g_paging.faults == 1;
  *byte = std::byte{43};
  return fetched && g_paging.faults == 2 && *byte == std::byte{43};
}

// ---- Trapped system calls; used in a child process with one thread only ----
volatile char g_selector = SYSCALL_DISPATCH_FILTER_ALLOW;
volatile int g_trapped = 0;

void count_trap(int, siginfo_t*, void*) {
  g_selector = SYSCALL_DISPATCH_FILTER_ALLOW;  // otherwise the handler's sigreturn would be trapped
  g_trapped = g_trapped + 1;
}

bool trap_probe() {
  handle(SIGSYS, count_trap);
  auto allowed = os::syscall_text();
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, allowed.data(), allowed.size(), &g_selector) != 0) {
    return false;
  }
  g_selector = SYSCALL_DISPATCH_FILTER_BLOCK;
  long from_allowed_range = os::call(SYS_getppid);
  bool let_through = from_allowed_range > 0 && g_trapped == 0;
  syscall(SYS_getppid);
  return let_through && g_trapped == 1;
}

// ---- Loopback ----
bool exchange_all(int fd, std::byte* buffer, bool sending) {
  for (size_t done = 0; done < kPageSize;) {
    ssize_t n = sending ? os::send(fd, buffer + done, kPageSize - done, MSG_DONTWAIT)
                        : os::recv(fd, buffer + done, kPageSize - done, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR)) return false;
    if (n > 0) done += static_cast<size_t>(n);
    else os::sched_yield();
  }
  return true;
}

void echo(int listener) {
  int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) return;
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::byte buffer[kPageSize];
  while (exchange_all(fd, buffer, false) && exchange_all(fd, buffer, true)) {}
  close(fd);
}

int listen_on_loopback(sockaddr_in* address) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof *address;
  auto* generic = reinterpret_cast<sockaddr*>(address);
  if (bind(listener, generic, size) == 0 && getsockname(listener, generic, &size) == 0 && listen(listener, 1) == 0) {
    return listener;
  }
  close(listener);
  return -1;
}

double median_us(std::vector<uint64_t> nanoseconds) {
  if (nanoseconds.empty()) return -1;
  auto middle = nanoseconds.begin() + static_cast<long>(nanoseconds.size() / 2);
  std::nth_element(nanoseconds.begin(), middle, nanoseconds.end());
  return static_cast<double>(*middle) / 1000;
}

double timed_rounds(int fd) {
  std::vector<uint64_t> times;
  std::byte buffer[kPageSize] = {};
  for (int i = 0; i < kRounds; i++) {
    uint64_t start = now_ns();
    if (!exchange_all(fd, buffer, true) || !exchange_all(fd, buffer, false)) break;
    times.push_back(now_ns() - start);
  }
  return median_us(std::move(times));
}

// One memory file, mapped twice.
struct TwoMappings {
  explicit TwoMappings(size_t bytes) : size(bytes) {
    int fd = os::memfd_create("farside-probe", MFD_CLOEXEC);
    if (fd < 0) return;
    if (os::ftruncate(fd, static_cast<off_t>(size)) == 0) {
      first = map(fd);
      second = map(fd);
    }
    os::close(fd);
  }
  ~TwoMappings() {
    if (first) munmap(first, size);
    if (second) munmap(second, size);
  }
  TwoMappings(const TwoMappings&) = delete;
  TwoMappings& operator=(const TwoMappings&) = delete;
  bool valid() const { return first && second; }
  std::byte* map(int fd) const {
    void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return address == MAP_FAILED ? nullptr : static_cast<std::byte*>(address);
  }

  size_t size;
  std::byte* first = nullptr;
  std::byte* second = nullptr;
};

template <size_t kPages, bool kEnlarge>
bool pipe_probe() {
  int ends[2];
  if (os::pipe(ends, O_CLOEXEC) < 0) return false;
  constexpr size_t kBytes = kPages * kPageSize;
  auto* pages = static_cast<unsigned char*>(os::map_near(kBytes));
  auto* copy = static_cast<unsigned char*>(os::map_near(kBytes));
  if (!pages || !copy || (kEnlarge && os::fcntl(ends[1], F_SETPIPE_SZ, kBytes) < 0)) return false;
  for (size_t i = 0; i < kBytes; i++) pages[i] = static_cast<unsigned char>(i * 7 + i / kPageSize);
  iovec range = {pages, kBytes};
  if (os::vmsplice(ends[1], &range, 1, 0) != static_cast<long>(kBytes)) return false;
  for (size_t done = 0; done < kBytes;) {
    ssize_t n = os::read(ends[0], copy + done, kBytes - done);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return memcmp(pages, copy, kBytes) == 0;
}

bool batch_probe() {
  auto* pages = static_cast<volatile char*>(os::map_near(3 * kPageSize));
  int self = os::pidfd_open(os::getpid());
  if (!pages || self < 0) return false;
  for (size_t i = 0; i < 3; i++) pages[i * kPageSize] = 1;
  auto at = [pages](size_t page) { return const_cast<char*>(pages) + page * kPageSize; };
  iovec ranges[] = {{at(0), kPageSize}, {at(2), kPageSize}};
  long done = os::process_madvise(self, ranges, 2, MADV_DONTNEED);
  return done == 2 * static_cast<long>(kPageSize) && *at(0) == 0 && *at(1) == 1 && *at(2) == 0;
}

}  // namespace

bool userfaultfd_by_syscall() { return closes(os::call(SYS_userfaultfd, O_CLOEXEC)); }

bool userfaultfd_by_device() {
  int device = os::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return false;
  bool opened = closes(os::call(SYS_ioctl, device, USERFAULTFD_IOC_NEW, O_CLOEXEC));
  os::close(device);
  return opened;
}

bool userfaultfd_user_mode_only() { return closes(os::call(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)); }

uint64_t userfaultfd_features() {
  uint64_t features = 0;
  return closes(os::open_userfaultfd(0, &features)) ? features : 0;
}

bool pages_for_itself() { return holds_in_child(paging_probe); }
bool traps_system_calls() { return holds_in_child(trap_probe); }
bool unmaps_in_batches() { return holds_in_child(batch_probe); }
bool holds_pages_in_pipe(bool large) {
  return holds_in_child(large ? pipe_probe<kPipePages, true> : pipe_probe<kMinPipePages, false>);
}

bool shares_memory_files() {
  TwoMappings file(kPageSize);
  if (!file.valid()) return false;
  *file.first = std::byte{42};
  return *static_cast<volatile std::byte*>(file.second) == std::byte{42};
}

bool reads_files_in_background() { return transport::FileQueue::probe() == 0; }

uint64_t reservable_space(uint64_t wanted) {
  for (uint64_t bytes = wanted; bytes >= kGiB; bytes /= 2) {
    void* address = os::map_near(bytes);
    if (!address) continue;
    os::unmap(address, bytes);
    return bytes;
  }
  return 0;
}

double tcp_round_trip_us() {
  sockaddr_in address;
  int listener = listen_on_loopback(&address);
  if (listener < 0) return -1;
  std::thread server(echo, listener);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  double result = connected ? timed_rounds(fd) : -1;
  close(fd);
  shutdown(listener, SHUT_RDWR);  // wakes the accept if the connection failed
  server.join();
  close(listener);
  return result;
}

double shm_copy_us() {
  constexpr size_t kPages = 4096;
  TwoMappings file(kPages * kPageSize);
  if (!file.valid()) return -1;
  memset(file.first, 1, file.size);
  memset(file.second, 2, file.size);  // maps its pages, so that the copies below take no faults
  std::vector<uint64_t> times;
  std::byte buffer[kPageSize];
  for (size_t i = 0; i < kRounds; i++) {
    uint64_t start = now_ns();
    memcpy(buffer, file.second + i * 1031 % kPages * kPageSize, kPageSize);
    asm volatile("" : : "r"(buffer) : "memory");
    times.push_back(now_ns() - start);
  }
  return median_us(std::move(times));
}

}  // namespace farside
