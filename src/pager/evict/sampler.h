// Makes the pages of a sample far again and again, so that their next uses are seen (docs/internals/sampling.md). For
// `farside plan`: in a run in which near memory is not limited, or for a while in any run. The first evictor calls
// step().
//
// A round makes the pages of one slice of the sample far, a few at a time, as long as the threads have lost no more
// than a part of their time to fetching such pages, beyond what they lose as a rule. So samples are evenly distributed
// over the heap and over the time of the program, and it is slowed evenly. A round begins when a part of the whole time
// has passed since the one before, so that the log of a long run is bounded. A heap that is smaller than the smallest
// near memory is not sampled.
#pragma once
#include <cstdint>

#include "pager/evict/evictor.h"
#include "pager/shared/sample_log.h"
#include "pager/size/sizing.h"

namespace farside::pager {

class Sampler : public NearObject {
 public:
  Sampler(SampleLog& log, PageTable& table, const Budget& budget, const Sizing& sizing)
      : log_(log), table_(table), budget_(budget), sizing_(sizing) {}
  // Samples pages 0 to used_pages() of the table. Call before the evictors start.
  void set_used_pages(uint64_t (*used_pages)(const void*), const void* argument) {
    used_pages_ = used_pages, argument_ = argument;
  }

  // Before the log is opened, also in the child of a fork.
  void reset() { due_ = 0, first_ = before_ = window_ = {}, next_ = end_ = 0, slice_ = 0, usual_loss_ = 0; }

  bool is_on() const { return log_.is_open(); }
  // Cheap. Ask after kPauseNs at the latest.
  bool is_due() const { return is_on() && ticks() >= due_; }
  static constexpr uint64_t kPauseNs = 1'000'000;
  // evictor_ns: processor time of the evictors since they were started.
  void step(Evictor& evictor, uint64_t evictor_ns);

 private:
  static constexpr uint32_t kMaxPages = 16384;  // of the sample

  bool may_begin(const Sizing::Times& now) const;
  bool begin(const Sizing::Times& now);
  bool may_continue(const Sizing::Times& now);
  uint64_t sampled_pages() const;
  size_t collect(std::span<PageIndex> out);

  SampleLog& log_;
  PageTable& table_;
  const Budget& budget_;
  const Sizing& sizing_;
  uint64_t (*used_pages_)(const void*) = nullptr;
  const void* argument_ = nullptr;
  uint64_t due_ = 0;              // ticks
  Sizing::Times first_, before_;  // when the first and the last round began
  Sizing::Times window_;          // when the time began of which a part may be lost
  double usual_loss_ = 0;         // the part of their time that the threads had lost before the first round
  PageIndex next_ = 0, end_ = 0;  // pages that the round has not reached
  uint32_t slice_ = 0;            // of the round
};

}  // namespace farside::pager
