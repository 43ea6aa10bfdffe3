// Waits for events of a UCX worker and of descriptors: polls for a while after the last event, since waking a thread
// costs several round trips, then sleeps. Used by one thread.
#pragma once
#include <sys/epoll.h>

#include <span>

#include "base/core_sharing.h"
#include "ucx/ucp_worker.h"

namespace farside::ucx {

class Polling {
 public:
  // control: a descriptor that is watched for input.
  Polling(UcpWorker* worker, int control);
  ~Polling();
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  // Adds, changes (EPOLL_CTL_MOD) or removes a descriptor.
  void watch(int operation, int fd, uint32_t events);

  // Progresses the worker, and returns when there may be something to do: after an event, or at least every 100 ms
  // while sleeps_briefly. False: there are no descriptors to wait with.
  bool next(bool sleeps_briefly = false);
  // The events of descriptors, other than the worker's, since the call of next().
  std::span<const epoll_event> events() const { return {events_, count_}; }

 private:
  static constexpr uint64_t kPollNs = 100'000;
  static constexpr uint64_t kLongYieldUs = 1000;
  static constexpr int kBriefMs = 100;
  static constexpr int kMaxEvents = 64;
  // Descriptors are asked less often than the worker, which costs no system call.
  static constexpr unsigned kRoundsPerWait = 8;

  UcpWorker& worker_;
  int epoll_;
  CoreSharing core_{kLongYieldUs};
  uint64_t last_event_ns_ = 0;
  unsigned round_ = 0;
  epoll_event events_[kMaxEvents];
  size_t count_ = 0;
};

}  // namespace farside::ucx
