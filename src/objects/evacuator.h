// Decides how segments come back (the path selector, Atlas 4.1) and empties those that are to be emptied: the numbered
// phases 2 to 6 of docs/internals/object_paths.md. One ordinary thread, so that it may fault; it stops nobody
// (AIFM 5.3).
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

  // Starts the thread; also in the child of a fork, where it is gone and what it had in hand is still there. 0 or an
  // errno value.
  int start();
  void stop();

  // Phase 2, by the pager's evictors.
  void leaving(std::span<const pager::PageIndex> pages) override;

 private:
  struct Pending {
    PageIndex page;
    uint64_t hot;  // lines that were licensed when it was closed
  };
  using List = std::vector<Pending, NearAllocator<Pending>>;

  // Where the objects of a data structure go.
  struct Survivors : NearObject {
    explicit Survivors(unsigned structure) : hot(Origin::kTaken, structure), cold(Origin::kTaken, structure) {}
    ObjectLog hot, cold;
  };

  void run();
  bool round();
  void collect();
  bool advance_one(Pending& pending, uint32_t oldest);
  void close(Pending& pending);
  bool empty(Pending& pending);
  void look_after(const Pending& pending);
  void sweep();
  bool reclaim(PageIndex page);
  void let_go(PageIndex page);
  void evacuate();
  Survivors& survivors(PageIndex page);

  ObjectSpace& space_;
  List pending_;                  // closing, closed, dead
  List emptying_;                 // near ones that have objects left
  unsigned swept_structure_ = 0;  // where the present lap is
  size_t swept_ = 0;
  bool reclaimed_ = false;                                  // in this lap
  unsigned rest_ = 0;                                       // rounds until the next lap
  std::unique_ptr<Survivors> survivors_[Structures::kMax];  // made when first needed
  pthread_t thread_ = {};
  bool started_ = false;
  std::atomic<bool> stopping_{false};
};

}  // namespace farside::objects
