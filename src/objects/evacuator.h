// Decides whether evicted segments are fetched as pages or object by object (the path selector, Atlas 4.1), and empties
// the segments that are to be emptied: phases 2 to 6 of docs/internals/object_paths.md. It is one ordinary thread, so
// it may fault; it stops no other thread (AIFM 5.3).
#pragma once
#include <pthread.h>
#include <memory>

#include <vector>

#include "base/near.h"
#include "objects/object_space.h"

namespace farside::objects {

class Evacuator : public NearObject, public pager::PageObserver {
 public:
  explicit Evacuator(ObjectSpace& space) : space_(space) {}
  ~Evacuator() override;

  // Starts the thread. Also in the child of a fork, where the thread is gone and its lists are still there. Returns 0
  // or a positive errno value.
  int start();
  void stop();

  // Phase 2, called by evictors.
  void on_evict(std::span<const pager::PageIndex> pages) override;
  // Of structures with an eviction handler, also called by evictors.
  bool may_evict(pager::PageIndex page) override;
  size_t leaving() const override { return asked_.load() + leaving_soon_.load(); }

 private:
  struct Pending {
    PageIndex page;
    uint64_t hot;                             // lines that were in use when it was closed
    SegmentState seen = SegmentState::kNone;  // in the last round
    uint32_t since = 0;                       // epoch in which that was seen first
    unsigned asked_rounds = 0;                // how long evictors have waited for it
    SlotSet permitted = {};                   // objects that the eviction handler has permitted to leave
  };
  using List = std::vector<Pending, NearAllocator<Pending>>;

  // The logs to which the objects of a data structure are moved.
  struct Survivors : NearObject {
    explicit Survivors(unsigned structure)
        : hot(Origin::kTaken, structure), cold(Origin::kTaken, structure, ObjectLog::kUnused) {}
    ObjectLog hot, cold;
  };

  void run();
  bool round();
  bool take_access_bits(PageIndex page);
  void collect();
  bool advance_one(Pending& pending, uint32_t oldest);
  void call_handlers();
  void count_leaving();
  void close(Pending& pending);
  bool empty(Pending& pending);
  void give_back(PageIndex page);
  bool is_asked_for(const Segment& segment);
  void queue(const Pending& pending);
  void sweep();
  bool reclaim(PageIndex page);
  void unlist(PageIndex page);
  void evacuate();
  Survivors& survivors(PageIndex page);

  ObjectSpace& space_;
  List pending_;                  // closing, closed, dead
  List emptying_;                 // near ones with objects left
  List handled_;                  // those whose eviction handler is to be called
  unsigned swept_structure_ = 0;  // the structure that the present lap examines
  size_t swept_ = 0;
  bool reclaimed_ = false;                                  // whether this lap reclaimed a segment
  unsigned pause_rounds_ = 0;                               // rounds until the next lap
  std::unique_ptr<Survivors> survivors_[Structures::kMax];  // created when first needed
  pthread_t thread_ = {};
  bool started_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> asked_{0};         // pages that evictors have asked for since the last round
  std::atomic<size_t> leaving_soon_{0};  // those asked for before
  Event woken_;
};

}  // namespace farside::objects
