// Reads of parts of pages that stay far: the objects that are taken from a page one by one. Reads of several fibers are
// sent as one request, since a request costs more than the bytes in it.
#pragma once
#include <atomic>
#include <span>

#include "transport/transport.h"

namespace farside::pager {

// Somebody waits for parts of pages that stay far. Lives on its reader's stack; done is set under the line's lock.
struct SubpageReadGroup {
  std::span<const transport::Segment> segments;
  std::atomic<bool> done{false};
  SubpageReadGroup* next = nullptr;
};

// Reads of pieces by several fibers that go out as one request, since it is requests that cost.
class SubpageQueue {
 public:
  static constexpr size_t kMaxSegments = 64;  // in one request
  static constexpr size_t kMaxUnderWay = 4;   // requests
  static constexpr size_t kEnough = 16;       // segments for which a request goes out beside two others

  bool empty() const { return !first_ && in_flight_ == 0; }
  bool has_queued() const { return first_; }
  bool is_full() const { return in_flight_ == kMaxUnderWay; }
  void push(SubpageReadGroup& read) {
    read.next = nullptr;
    (first_ ? last_->next : first_) = &read;
    last_ = &read;
    queued_ += read.segments.size();
  }
  bool should_send() const {
    if (!first_ || in_flight_ == kMaxUnderWay) return false;
    return in_flight_ < 2 || queued_ >= kEnough;
  }
  // Sends the first reads of the queue together. 0 or -errno; on an error they stay queued.
  int send(transport::Channel& channel);
  // Waits for the oldest request, or asks whether it has come. 1: it has; its reads are done. 0 or -errno: not.
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
  Request requests_[kMaxUnderWay] = {};  // the oldest first
};

}  // namespace farside::pager
