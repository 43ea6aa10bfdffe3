// The C functions for runs, fibers and sockets; those for mutexes, conditions, groups and channels are in sync.cc. This
// is the only file that connects the public interface with Run. Not async-signal-safe.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/bits.h"
#include "base/clock.h"
#include "farside/fiber.h"
#include "fiber/run.h"
#include "fiber/wait.h"

namespace farside::fibers {
namespace {

constexpr size_t kSmallestStack = 16 * kKiB;  // a signal frame with AVX-512 and AMX registers takes 11 KiB
constexpr size_t kLargestStack = kGiB;
#if defined(FARSIDE_FIBER_ASAN) || defined(FARSIDE_FIBER_TSAN)
constexpr size_t kSanitizerFactor = 4;  // instrumented frames are larger
#else
constexpr size_t kSanitizerFactor = 1;
#endif

// Settings of the next run. They change only while g_running is false; it is true during a run, so there is one at a
// time.
std::atomic<bool> g_running{false};
size_t g_stack_bytes = 64 * kKiB;
Hooks g_hooks;

unsigned processors() {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return count < static_cast<int>(Runtime::kMaxWorkers) ? static_cast<unsigned>(count) : Runtime::kMaxWorkers;
}

// ---- join ----

// Runs in the loop, off the joiner's stack: registers the joiner with the fiber, or makes it ready because the fiber
// has ended or cannot be joined.
void register_joiner(Fiber* joiner, void* target) {
  uintptr_t running = 0;
  auto* fiber = static_cast<Fiber*>(target);
  joiner->result = 0;
  if (fiber->join_state.compare_exchange_strong(running, reinterpret_cast<uintptr_t>(joiner))) return;
  if (running != Fiber::kEnded) joiner->result = -EINVAL;
  make_ready(joiner);
}

// ---- sockets ----

// Not inlined: the compiler could keep the address of errno, which is that of another thread after a switch.
__attribute__((noinline)) ssize_t result_or_errno(ssize_t result) {
  asm volatile("" ::: "memory");
  return result < 0 ? -errno : result;
}

int set_non_blocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK)) return 0;
  return static_cast<int>(result_or_errno(flags < 0 ? flags : fcntl(fd, F_SETFL, flags | O_NONBLOCK)));
}

int wait_for(int fd, uint32_t events) {
  if (fd < 0) return -EBADF;
  Call call;
  if (!call) return -EPERM;
  Fiber* self = call.fiber();
  self->fd = fd;
  self->events = events;
  park(
      Waiting::kSocket,
      [](Fiber* f, void*) {
        Runtime& runtime = this_worker()->runtime();
        if (runtime.sockets().add(f)) runtime.event_added(false);
      },
      nullptr);
  return self->result;
}

// Repeats attempt() until it returns something other than EAGAIN, and waits for the descriptor in between. The attempt
// is not inside a Call: its buffers may be far, and the fault has to suspend the fiber.
template <typename Attempt>
ssize_t when_ready(int fd, uint32_t events, Attempt attempt) {
  if (!farside_fiber_self()) return -EPERM;
  for (;;) {
    ssize_t result = result_or_errno(attempt());
    if (result == -EINTR) continue;
    if (result != -EAGAIN) return result;
    if (int error = wait_for(fd, events)) return error;
  }
}

ssize_t read_other(int fd, void* buffer, size_t bytes) {
  if (int error = set_non_blocking(fd)) return error;
  return when_ready(fd, EPOLLIN, [=] { return ::read(fd, buffer, bytes); });
}

ssize_t write_some(int fd, const void* buffer, size_t bytes, bool* is_socket) {
  if (*is_socket) {
    ssize_t sent = farside_fiber_send(fd, buffer, bytes, 0);
    if (sent != -ENOTSOCK) return sent;
    *is_socket = false;
    if (int error = set_non_blocking(fd)) return error;
  }
  return when_ready(fd, EPOLLOUT, [=] { return ::write(fd, buffer, bytes); });
}

}  // namespace

void set_hooks(const Hooks& hooks) { g_hooks = hooks; }

}  // namespace farside::fibers

using namespace farside;          // NOLINT: the rest of the file is the interface of these two
using namespace farside::fibers;  // NOLINT

extern "C" {

int farside_fiber_run(unsigned workers, void (*function)(void*), void* argument) {
  if (workers > Runtime::kMaxWorkers) return -EINVAL;
  if (g_running.exchange(true)) return -EBUSY;
  Run* run = nullptr;
  {
    SignalsBlocked blocked;  // as the near allocator requires
    run = new Run(workers ? workers : processors(), g_stack_bytes * kSanitizerFactor, g_hooks);
  }
  int result = run->run(function, argument);
  SignalsBlocked blocked;
  delete run;
  g_running = false;
  return result;
}

int farside_fiber_set_stack_size(size_t bytes) {
  if (bytes < kSmallestStack || bytes > kLargestStack) return -EINVAL;
  if (g_running) return -EBUSY;
  g_stack_bytes = align_up(bytes, kPageSize);
  return 0;
}

int farside_fiber_spawn(farside_fiber** fiber, void (*function)(void*), void* argument) {
  Fiber* made = nullptr;
  {
    Call call;
    if (!call) return -EPERM;
    made = this_worker()->runtime().make_fiber(function, argument);
    if (!made) return -ENOMEM;
    if (!fiber) made->join_state = Fiber::kDetached;
    make_ready(made);
  }
  if (fiber) *fiber = made;
  return 0;
}

int farside_fiber_join(farside_fiber* fiber) {
  Call call;
  if (!call) return -EPERM;
  Fiber* self = call.fiber();
  if (self == fiber) return -EDEADLK;
  if (fiber->join_state != Fiber::kEnded) park(Waiting::kJoin, register_joiner, fiber);
  else self->result = 0;
  if (self->result == 0) this_worker()->runtime().recycle(fiber);
  return self->result;
}

int farside_fiber_detach(farside_fiber* fiber) {
  Call call;
  if (!call) return -EPERM;
  uintptr_t running = 0;
  if (fiber->join_state.compare_exchange_strong(running, Fiber::kDetached)) return 0;
  if (running != Fiber::kEnded) return -EINVAL;
  this_worker()->runtime().recycle(fiber);
  return 0;
}

int farside_fiber_yield() {
  Call call;
  if (!call) return -EPERM;
  park(
      Waiting::kNothing, [](Fiber* f, void*) { this_worker()->requeue(f); }, nullptr);
  return 0;
}

int farside_fiber_sleep(uint64_t nanoseconds) {
  Call call;
  if (!call) return -EPERM;
  uint64_t now = now_ns();
  call.fiber()->deadline = nanoseconds < Timers::kNever - now ? now + nanoseconds : Timers::kNever - 1;
  park(
      Waiting::kTimer,
      [](Fiber* f, void*) {
        Runtime& runtime = this_worker()->runtime();
        runtime.event_added(runtime.timers().insert(f));
      },
      nullptr);
  return 0;
}

int farside_fiber_hold() {
  Fiber* self = farside_fiber_self();
  if (!self) return -EPERM;
  self->holds = self->holds + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return 0;
}

int farside_fiber_release() {
  Fiber* self = farside_fiber_self();
  if (!self) return -EPERM;
  if (self->holds == 0) return -EINVAL;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  self->holds = self->holds - 1;
  return 0;
}

farside_fiber* farside_fiber_self() {
  Worker* worker = this_worker();
  return worker ? worker->current() : nullptr;
}

int farside_fiber_accept(int fd, struct sockaddr* address, socklen_t* length) {
  if (int error = set_non_blocking(fd)) return error;
  return static_cast<int>(when_ready(fd, EPOLLIN, [=] { return ::accept(fd, address, length); }));
}

int farside_fiber_connect(int fd, const struct sockaddr* address, socklen_t length) {
  if (!farside_fiber_self()) return -EPERM;
  if (int error = set_non_blocking(fd)) return error;
  ssize_t result = result_or_errno(::connect(fd, address, length));
  if (result != -EINPROGRESS && result != -EINTR && result != -EAGAIN) return static_cast<int>(result);
  if (result == -EAGAIN) return -EAGAIN;  // the backlog of a Unix socket is full: no event tells when it has room
  if (int error = wait_for(fd, EPOLLOUT)) return error;
  int error = 0;
  socklen_t error_length = sizeof error;
  result = result_or_errno(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_length));
  return result < 0 ? static_cast<int>(result) : -error;
}

ssize_t farside_fiber_recv(int fd, void* buffer, size_t bytes, int flags) {
  return when_ready(fd, EPOLLIN, [=] { return ::recv(fd, buffer, bytes, flags | MSG_DONTWAIT); });
}

ssize_t farside_fiber_send(int fd, const void* buffer, size_t bytes, int flags) {
  return when_ready(fd, EPOLLOUT, [=] { return ::send(fd, buffer, bytes, flags | MSG_DONTWAIT | MSG_NOSIGNAL); });
}

ssize_t farside_fiber_read(int fd, void* buffer, size_t bytes) {
  ssize_t got = farside_fiber_recv(fd, buffer, bytes, 0);
  return got == -ENOTSOCK ? read_other(fd, buffer, bytes) : got;
}

ssize_t farside_fiber_write(int fd, const void* buffer, size_t bytes) {
  bool is_socket = true;
  size_t written = 0;
  do {
    ssize_t part = write_some(fd, static_cast<const std::byte*>(buffer) + written, bytes - written, &is_socket);
    if (part < 0) return written > 0 ? static_cast<ssize_t>(written) : part;
    if (part == 0) break;
    written += static_cast<size_t>(part);
  } while (written < bytes);
  return static_cast<ssize_t>(written);
}

int farside_fiber_wait_ready(int fd, int events) {
  uint32_t wanted =
      ((events & FARSIDE_FIBER_READABLE) ? EPOLLIN : 0u) | ((events & FARSIDE_FIBER_WRITABLE) ? EPOLLOUT : 0u);
  return wanted ? wait_for(fd, wanted) : -EINVAL;
}

// Fibers that wait before the close wait for this descriptor: -EBADF. Fibers that began to wait during the close may
// wait for a new descriptor of the same number: they are woken with 0 and try again.
int farside_fiber_close(int fd) {
  {
    Call call;
    if (!call) return -EPERM;
    this_worker()->runtime().sockets().wake_waiters(fd, -EBADF);
  }
  int result = static_cast<int>(result_or_errno(::close(fd)));
  Call call;
  this_worker()->runtime().sockets().wake_waiters(fd, 0);
  return result;
}

}  // extern "C"
