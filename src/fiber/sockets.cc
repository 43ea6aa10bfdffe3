#include "fiber/sockets.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/log.h"
#include "fiber/timers.h"

namespace farside::fibers {
namespace {

constexpr uint64_t kWakeupKey = UINT64_MAX;

}  // namespace

int Sockets::open() {
  int epoll = static_cast<int>(os::call(SYS_epoll_create1, EPOLL_CLOEXEC));
  if (epoll < 0) return epoll;
  epoll_ = os::move_fd_high(epoll);
  int wakeup = static_cast<int>(os::call(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wakeup < 0) return wakeup;
  wakeup_ = os::move_fd_high(wakeup);
  epoll_event event = {EPOLLIN, {.u64 = kWakeupKey}};
  return static_cast<int>(os::call(SYS_epoll_ctl, epoll_, EPOLL_CTL_ADD, wakeup_, &event));
}

void Sockets::close() {
  if (epoll_ >= 0) os::close(epoll_);
  if (wakeup_ >= 0) os::close(wakeup_);
}

bool Sockets::add(Fiber* fiber) {
  int fd = fiber->fd;
  Bucket& bucket = bucket_of(fd);
  FiberList refused;
  fiber->result = 0;
  waiters_.fetch_add(1);
  bucket.lock.lock();
  bucket.waiting.push(fiber);
  int error = arm(bucket, fd);
  if (error < 0) bucket.waiting.take_if([&](Fiber* f) { return f->fd == fd; }, [&](Fiber* f) { refused.push(f); });
  bucket.lock.unlock();
  if (error < 0) wake_all(&refused, error);
  return error >= 0;
}

// Arms the descriptor for the events of all its waiters.
int Sockets::arm(Bucket& bucket, int fd) {
  epoll_event event = {EPOLLONESHOT, {.u64 = static_cast<uint64_t>(fd)}};
  bucket.waiting.for_each([&](Fiber* f) {
    if (f->fd == fd) event.events |= f->events;
  });
  if (event.events == EPOLLONESHOT) return 0;
  long r = os::call(SYS_epoll_ctl, epoll_, EPOLL_CTL_MOD, fd, &event);
  if (r == -ENOENT) r = os::call(SYS_epoll_ctl, epoll_, EPOLL_CTL_ADD, fd, &event);
  return static_cast<int>(r);
}

void Sockets::wait(SocketEvents* events, uint64_t timeout_ns) {
  timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000), static_cast<long>(timeout_ns % 1000000000)};
  timespec* limit = timeout_ns == Timers::kNever ? nullptr : &timeout;
  long r = os::call(SYS_epoll_pwait2, epoll_, events->events, SocketEvents::kMax, limit, nullptr, 0);
  if (r < 0 && r != -EINTR) {
    die("the fibers' epoll descriptor {} is unusable (error {}): the program closed it, or Linux is older than 5.11",
        epoll_, -r);
  }
  events->count = r > 0 ? static_cast<int>(r) : 0;
}

void Sockets::handle(const SocketEvents& events) {
  for (int i = 0; i < events.count; i++) {
    const epoll_event& event = events.events[i];
    uint64_t count = 0;
    if (event.data.u64 == kWakeupKey) os::read(wakeup_, &count, sizeof count);
    else dispatch(static_cast<int>(event.data.u64), event.events);
  }
}

// Wakes one waiter for each event. The descriptor is armed again for the others, which are woken if the event is still
// there. An error or hang-up wakes all.
void Sockets::dispatch(int fd, uint32_t events) {
  Bucket& bucket = bucket_of(fd);
  FiberList woken;
  uint32_t left = events;
  auto wanted = [&](Fiber* f) {
    if (f->fd != fd) return false;
    if (events & (EPOLLERR | EPOLLHUP)) return true;
    bool hit = (f->events & left) != 0;
    if (hit) left &= ~f->events;
    return hit;
  };
  bucket.lock.lock();
  bucket.waiting.take_if(wanted, [&](Fiber* f) { woken.push(f); });
  int error = arm(bucket, fd);
  if (error < 0) bucket.waiting.take_if([&](Fiber* f) { return f->fd == fd; }, [&](Fiber* f) { woken.push(f); });
  bucket.lock.unlock();
  wake_all(&woken, 0);  // they repeat their system call, which returns the error
}

void Sockets::wake_waiters(int fd, int result) {
  Bucket& bucket = bucket_of(fd);
  FiberList woken;
  bucket.lock.lock();
  bucket.waiting.take_if([&](Fiber* f) { return f->fd == fd; }, [&](Fiber* f) { woken.push(f); });
  bucket.lock.unlock();
  wake_all(&woken, result);
}

void Sockets::wake_all(FiberList* fibers, int result) {
  while (Fiber* fiber = fibers->pop()) {
    fiber->result = result;
    make_ready_(fiber);
    waiters_.fetch_sub(1);
  }
}

void Sockets::interrupt() {
  uint64_t one = 1;
  os::write(wakeup_, &one, sizeof one);
}

}  // namespace farside::fibers
