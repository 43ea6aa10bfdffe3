// Data structures: each has its own segments, so that an eviction policy can be set for them and their evicted objects
// can be listed (AIFM 4.2.3, 5.1). Structure 0 is for objects of no structure. Structures are never destroyed.
#pragma once
#include <atomic>
#include <memory>

#include "base/near.h"
#include "base/sync.h"
#include "farside/object.h"
#include "objects/move_gate.h"
#include "objects/object_log.h"
#include "pager/evict/evictor.h"

namespace farside::objects {

// What is called before objects leave (AIFM 4.2.3).
struct EvictionHandler {
  Mutex mutex;  // held during calls
  farside_eviction_handler* function GUARDED_BY(mutex) = nullptr;
  void* context GUARDED_BY(mutex) = nullptr;
  std::atomic<bool> is_set{false};
};

struct Structure : NearObject {
  Structure(pager::Pager& pager, SegmentTable& table) : pool(pager, table) {}
  SegmentPool pool;
  MoveGate moves;
  EvictionHandler handler;
  bool tracks_evictions = false;
  pager::PageFifo evicted;  // evicted segments, if tracks_evictions
};

class Structures {
 public:
  static constexpr unsigned kMax = 64;

  Structures(pager::Pager& pager, SegmentTable& table) : pager_(pager), table_(table) {
    all_[0] = std::make_unique<Structure>(pager, table);
  }

  // Returns its number or a negative errno value; see farside_structure_create.
  int create(const farside_structure_options& options);
  // See farside_structure_on_evict.
  int set_handler(unsigned structure, farside_eviction_handler* function, void* context);
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  Structure& operator[](unsigned number) { return *all_[number]; }
  uint64_t segments() const;
  bool moves_are_stopped() const;  // of any of them

  // For a fork: no thread is inside a pool or create().
  void lock() NO_THREAD_SAFETY_ANALYSIS;  // locks of a number of pools that only the running program knows
  void unlock() NO_THREAD_SAFETY_ANALYSIS;
  void reset_in_child(uint64_t stopped);  // by the forking thread

 private:
  pager::Pager& pager_;
  SegmentTable& table_;
  Mutex mutex_;  // guards creation
  std::atomic<unsigned> count_{1};
  std::unique_ptr<Structure> all_[kMax];
};

}  // namespace farside::objects
