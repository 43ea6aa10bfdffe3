// Data structures: each has segments of its own, so that a policy can rule them and what leaves can be told apart
// (AIFM 4.2.3, 5.1). Number 0 is for all that belongs to none. They are made and never ended.
#pragma once
#include <atomic>
#include <memory>

#include "base/near.h"
#include "base/sync.h"
#include "farside/object.h"
#include "objects/object_log.h"
#include "pager/evictor.h"

namespace farside::objects {

struct Structure : NearObject {
  Structure(pager::Pager& pager, SegmentTable& table) : pool(pager, table) {}
  SegmentPool pool;
  bool tracks_evictions = false;
  pager::PageFifo evicted;  // where it tells: segments that have left
};

class Structures {
 public:
  static constexpr unsigned kMax = 64;

  Structures(pager::Pager& pager, SegmentTable& table) : pager_(pager), table_(table) {
    all_[0] = std::make_unique<Structure>(pager, table);
  }

  // Its number, or a negative errno value: see farside_structure_create.
  int create(const farside_structure_options& options);
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  Structure& operator[](unsigned number) { return *all_[number]; }
  uint64_t segments() const;

  // fork: nobody is inside any pool, and none is made.
  void lock();
  void unlock();

 private:
  pager::Pager& pager_;
  SegmentTable& table_;
  Mutex mutex_;  // guards the making
  std::atomic<unsigned> count_{1};
  std::unique_ptr<Structure> all_[kMax];
};

}  // namespace farside::objects
