// How much near memory a program needs so that it loses no more time to far memory than its user accepts: the rules,
// without threads and clocks. sizing.h applies them (docs/decisions/0065).
//
// The loss is the time that threads lose to far memory by the rest of their time. A window ends when the threads have
// run for long enough to see it, or have lost what they may lose in such a time:
//   above the target     Near memory grows at once by what the refaults of the window say: a page that returns after n
//                        evictions would have stayed with n pages more (the refault distance of the kernel's
//                        workingset.c).
//   below a part of it   Near memory shrinks by a step, so small that its pages, as far as they return, cost what is
//                        left of the target. What part returns is learned from the pages evicted before. The loss of
//                        the last second and of the last half minute must be below the target, too: a step that went
//                        too far is followed by a pause as long as it was costly.
// This is Meta's Senpai (TMO, ASPLOS 2022) with a measured loss in place of the kernel's pressure, and with jumps.
#pragma once
#include <cstdint>

#include "pager/shared/stats.h"

namespace farside::pager {

// What has happened since the sample before.
struct SizeSample {
  uint64_t elapsed_ns = 0;
  uint64_t run_ns = 0;   // processor time of the program's threads, in faults too
  uint64_t lost_ns = 0;  // time of threads that far memory took
  uint64_t evicted = 0;  // pages
  // Now, in pages.
  uint64_t near = 0;
  uint64_t far = 0;        // populated pages that are not near
  uint64_t free = 0;       // frames that may be taken before an eviction
  bool shrinking = false;  // the last step down has not been evicted yet
};

class Sizer {
 public:
  // slowdown: the accepted loss, as a part of the time without far memory.
  explicit Sizer(double slowdown) : target_(slowdown) {}

  // Adds a sample to the window. Returns whether the window has ended: then next() has to follow, else idle().
  bool add(const SizeSample& sample);
  // How many populated pages are to be far from now on, if `far` were to until now. sample: the last one. ages: of the
  // pages fetched again in the window, the evictions since their own. least: pages that stay near.
  uint64_t next(const SizeSample& sample, const Histogram& ages, uint64_t far, uint64_t least);
  // The same, where the program has not run for long enough to end a window: it gives back a little each second.
  uint64_t idle(const SizeSample& sample, uint64_t far, uint64_t least);

 private:
  struct Times {
    double run = 0, lost = 0;  // ns
    void add(const Times& t) { run += t.run, lost += t.lost; }
    // Adds to a mean over so much running time.
    void add(const Times& t, double ns);
    double useful() const;
    double loss() const { return run + lost > 0 ? lost / useful() : 0; }
  };

  void learn(uint64_t returned);
  uint64_t grow(const SizeSample& sample, const Histogram& ages, uint64_t far) const;
  uint64_t shrink(const SizeSample& sample, uint64_t far, uint64_t least) const;

  const double target_;
  Times window_, recent_, long_;
  uint64_t elapsed_ = 0;       // of the window
  uint64_t evicted_ = 0;       // in the window
  double page_cost_ = 10'000;  // ns that a page lost that was fetched again
  double returns_ = 0.5;       // the part of evicted pages that return
};

}  // namespace farside::pager
