// Reads of parts of pages that stay far, for objects that are fetched one by one. Reads of several fibers are sent as
// one request, since a request costs more than the bytes in it.
//
// Part of a thread's ReadQueue, whose lock guards all functions.
#pragma once
#include <atomic>
#include <span>

#include "transport/transport.h"

namespace farside::pager {

// The reads of one call of FetchPath::read_subpages. It is on the stack of the waiting thread or fiber. `done` is set
// under the lock of the read queue.
struct SubpageReadGroup {
  std::span<const transport::ByteRange> ranges;
  std::atomic<bool> done{false};
  SubpageReadGroup* next = nullptr;
};

// Groups that are queued, and requests in flight, each with several groups.
class SubpageQueue {
 public:
  static constexpr size_t kMaxRanges = 64;   // of one request
  static constexpr size_t kMaxInFlight = 4;  // requests
  static constexpr size_t kMinToSend = 16;   // ranges for which a third or fourth request is sent

  bool empty() const { return !first_ && in_flight_ == 0; }
  bool has_queued() const { return first_; }
  bool is_full() const { return in_flight_ == kMaxInFlight; }
  void push(SubpageReadGroup& read) {
    read.next = nullptr;
    (first_ ? last_->next : first_) = &read;
    last_ = &read;
    queued_ += read.ranges.size();
  }
  bool should_send() const {
    if (!first_ || in_flight_ == kMaxInFlight) return false;
    return in_flight_ < 2 || queued_ >= kMinToSend;
  }
  // Sends the first groups of the queue in one request. Returns 0 or -errno; on an error they stay queued.
  int send(transport::Channel& channel);
  // Waits for the oldest request, or polls it. Returns 1 if it has arrived; its groups are done then. Returns 0 if it
  // has not, or -errno.
  int finish_oldest(transport::Channel& channel, bool wait, uint64_t timeout_ns, size_t* reads_done);

 private:
  struct Request {
    transport::Token token;
    SubpageReadGroup* first;
    SubpageReadGroup* last;
  };
  SubpageReadGroup* first_ = nullptr;
  SubpageReadGroup* last_ = nullptr;
  size_t queued_ = 0, in_flight_ = 0;
  Request requests_[kMaxInFlight] = {};  // oldest first
};

}  // namespace farside::pager
