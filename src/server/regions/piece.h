// Work on the regions of a family is done in pieces, so that a request that concerns many pages, or pages with many
// snapshots, does not keep others from the family lock, from a thread, or from the pool. During one piece the lock is
// held; it ends when the budget of visits is spent, and the rest follows in further pieces. A visit is a page that is
// changed, or a region that is asked for pages.
//
//   request   [piece][piece][piece]     kMore, kMore, 0
//   others           |      |           requests of other connections; pieces of other requests
//
// What is left of a request is in its Progress. Each page is changed as a whole in one piece, so between two pieces a
// region has some pages as after the request and the others as before it. A request that is dropped between two pieces,
// because its connection ended, leaves them so: its client has no reply, and repeats the request or is gone.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "wire/codec.h"

namespace farside::server {

inline constexpr int kMore = 1;  // result of a piece: there are more to come

// Of one family.
struct Visits {
  uint64_t limit = 4096;          // in one piece; tests lower it
  std::atomic<uint64_t> most{0};  // that a piece has made
};

class WorkPiece {
 public:
  // total: counts the visits of all pieces of a request.
  explicit WorkPiece(Visits* visits, uint64_t* total = nullptr) : visits_(visits), total_(total) {}
  ~WorkPiece() {
    if (total_) *total_ += made_;
    uint64_t most = visits_->most;
    while (most < made_ && !visits_->most.compare_exchange_weak(most, made_)) {}
  }
  WorkPiece(const WorkPiece&) = delete;
  WorkPiece& operator=(const WorkPiece&) = delete;

  // At most `wanted` visits, as many as are left; 0: the piece is over.
  uint64_t take(uint64_t wanted) {
    uint64_t taken = std::min(wanted, visits_->limit - made_);
    made_ += taken;
    return taken;
  }
  bool visit() { return take(1) == 1; }

 private:
  Visits* const visits_;
  uint64_t* const total_;
  uint64_t made_ = 0;
};

// How far a request for a list of ranges has come.
class Progress {
 public:
  uint64_t moved() const { return moved_; }  // bytes, which is an offset in the request's data
  // What is left of the next range, with the adjacent ones that follow.
  wire::ByteRange rest(const wire::RangeList& ranges) const;
  bool is_over(const wire::RangeList& ranges) const { return range_ == ranges.size(); }
  void pass(const wire::RangeList& ranges, uint64_t bytes);

  // Overlays of the region up to this identifier have the old content of the page that is next.
  uint64_t saved_up_to = 0;
  // A discard's: the page at this offset holds data.
  uint64_t has_data_at = ~uint64_t{0};
  // There is too little memory, but more is being freed.
  bool needs_memory = false;
  uint64_t visits = 0;  // in all pieces

 private:
  uint32_t range_ = 0;   // the next one
  uint64_t inside_ = 0;  // bytes of it that are done
  uint64_t moved_ = 0;
};

inline wire::ByteRange Progress::rest(const wire::RangeList& ranges) const {
  wire::ByteRange run = ranges[range_];
  run.offset += inside_;
  run.bytes -= inside_;
  for (uint32_t i = range_ + 1; i < ranges.size() && ranges[i].offset == run.offset + run.bytes; i++)
    run.bytes += ranges[i].bytes;
  return run;
}

inline void Progress::pass(const wire::RangeList& ranges, uint64_t bytes) {
  if (bytes > 0) saved_up_to = 0;
  moved_ += bytes;
  inside_ += bytes;
  while (range_ < ranges.size() && inside_ >= ranges[range_].bytes) inside_ -= ranges[range_++].bytes;
}

}  // namespace farside::server
