// Sizes near memory while the program runs (--local auto): collects the times that its threads lose and the refault
// distances, every 2 ms while evictors work and ten times a second else, and sets how many pages are far as Sizer says.
// The first evictor calls step().
#pragma once
#include <atomic>
#include <optional>

#include "pager/pages/budget.h"
#include "pager/pages/frames.h"
#include "pager/size/available_memory.h"
#include "pager/size/sizer.h"
#include "pager/thread/thread_slot.h"

namespace farside::pager {

class Sizing {
 public:
  Sizing(Budget& budget, Frames& frames, ThreadRegistry& threads, double slowdown)
      : budget_(budget), frames_(frames), threads_(threads), slowdown_(slowdown) {}

  // Whether a step is due. Cheap.
  bool is_due() const { return budget_.is_automatic() && ticks() >= due_; }
  // evictor_ns: processor time of the evictors since they were started. Returns whether the limit has fallen.
  bool step(uint64_t evictor_ns);
  double slowdown() const { return slowdown_; }
  // Means over time, in pages. By any thread.
  struct Means {
    uint64_t near, populated;
  };
  Means means() const;
  // Of all threads, since they were started. By one thread.
  struct Times {
    uint64_t elapsed_ns = 0;  // since any time
    uint64_t run_ns = 0;      // processor time of the program's threads, in faults too
    uint64_t lost_ns = 0;     // in faults, without first touches
  };
  Times times(uint64_t evictor_ns) const { return totals(evictor_ns); }
  // In the child of a fork, whose threads and counters are new.
  void reset_in_child();

 private:
  struct Totals : Times {
    uint64_t evicted = 0;  // pages
  };

  void add_to_means(uint64_t us);
  void look_at_machine();
  Totals totals(uint64_t evictor_ns) const;
  Histogram ages() const;
  SizeSample sample_since(const Totals& before, const Totals& now) const;
  uint64_t end_window(const SizeSample& sample, uint64_t far, uint64_t least);

  Budget& budget_;
  Frames& frames_;
  ThreadRegistry& threads_;
  const double slowdown_;
  uint64_t due_ = 0;                        // ticks
  uint64_t machine_due_ = 0;                // ns
  std::optional<AvailableMemory> machine_;  // most processes are too small to need it
  std::optional<Sizer> sizer_;
  Totals before_;          // at the last step
  Histogram before_ages_;  // at the end of the last window
  // Pages by the time that they were near, or populated; the time.
  std::atomic<uint64_t> near_page_us_{0}, populated_page_us_{0}, us_{0};
};

}  // namespace farside::pager
