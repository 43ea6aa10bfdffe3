#include "ucx/polling.h"

#include "base/clock.h"
#include "base/os.h"

namespace farside::ucx {

Polling::Polling(UcpWorker* worker, int control) : worker_(*worker), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  watch(EPOLL_CTL_ADD, worker_.event_fd(), EPOLLIN);
  watch(EPOLL_CTL_ADD, control, EPOLLIN);
}

Polling::~Polling() { os::close(epoll_); }

void Polling::watch(int operation, int fd, uint32_t events) {
  epoll_event event = {events, {.fd = fd}};
  epoll_ctl(epoll_, operation, fd, &event);
}

bool Polling::next(bool sleeps_briefly) {
  count_ = 0;
  bool progressed = false;
  while (worker_.progress() != 0) progressed = true;
  uint64_t now = now_ns();
  if (progressed) last_event_ns_ = now;
  bool polls = now - last_event_ns_ < kPollNs && !core_.is_crowded();
  bool sleeps = !polls && !progressed && worker_.arm();
  if (polls && !progressed) core_.yield();
  if (polls && ++round_ % kRoundsPerWait != 0) return epoll_ >= 0;
  int count = epoll_wait(epoll_, events_, kMaxEvents, !sleeps ? 0 : sleeps_briefly ? kBriefMs : -1);
  for (int i = 0; i < count; i++) {
    if (events_[i].data.fd != worker_.event_fd()) events_[count_++] = events_[i];
  }
  if (count_ > 0) last_event_ns_ = now_ns();
  return epoll_ >= 0;
}

}  // namespace farside::ucx
