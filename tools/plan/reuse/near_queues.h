// The pages of near memory in the order in which the pager's policy 2q would evict them: a model of
// src/pager/policy/two_queue.h, which explains the queues and the limits. For one budget; not thread-safe.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>

namespace farside::plan {

class NearQueues {
 public:
  // A page was fetched. hot: as is_hot() said; is_new: it was accessed for the first time. Returns whether it is in the
  // main queue now.
  bool add(uint64_t page, bool hot, bool is_new) {
    bool main = hot || !was_full_;
    if (main) {
      main_.push_back(page);
    } else {
      (is_new ? new_ : recent_).push_back(page);
      added_new_ += is_new;
    }
    return main;
  }

  // Whether a page that returns after `age` evictions is hot. limit: pages that may be near.
  bool is_hot(bool was_main, uint64_t age, uint64_t limit) {
    bool hot = age <= soon(limit);
    main_soon_ += was_main && hot;
    main_back_ += was_main && age <= limit;
    recent_back_ += !was_main && age <= limit / 8;
    return hot;
  }

  // Takes the next page to evict. False: there is none.
  bool take(uint64_t* page) {
    was_full_ = true;
    uint64_t all = recent_.size() + new_.size() + main_.size();
    if (all == 0) return false;
    keep_recent_ = std::clamp(keep_recent_, std::max(all / kRecentShare, std::min<uint64_t>(64, all / 4)), all);
    std::deque<uint64_t>& from = next(all);
    *page = from.front();
    from.pop_front();
    pushed_out_ += &from == &main_;
    if (++evicted_ >= all / 8) adapt(all);
    return true;
  }

 private:
  static constexpr uint64_t kRecentShare = 32, kNewShare = 4;

  std::deque<uint64_t>& next(uint64_t all) {
    if (recent_.size() > keep_recent_) return recent_;
    if (new_.size() > std::min(keep_new_, all / kNewShare)) return new_;
    if (!main_.empty()) return main_;
    return recent_.empty() ? new_ : recent_;
  }

  uint64_t soon(uint64_t limit) const { return std::min(limit - limit / kRecentShare, soon_); }

  void adapt(uint64_t all) {
    uint64_t now = soon(all);
    if (2 * main_soon_ > pushed_out_) now -= now / 4;
    else if (4 * main_soon_ <= pushed_out_) now += all / 64;
    soon_ = std::max(now, all / 64 + 1);
    if (4 * main_back_ > 3 * pushed_out_) keep_recent_ -= keep_recent_ / 2;
    else if (2 * main_back_ <= pushed_out_ && 8 * recent_back_ > evicted_) keep_recent_ += all / 16;
    else keep_recent_ -= keep_recent_ / 16;
    keep_recent_ = std::min(keep_recent_, all - all / 8);
    keep_new_ = 8 * added_new_ > evicted_ ? all / kNewShare : std::min(keep_new_, all / kNewShare) / 2;
    added_new_ = main_soon_ = main_back_ = recent_back_ = evicted_ = pushed_out_ = 0;
  }

  std::deque<uint64_t> recent_, new_, main_;
  bool was_full_ = false;
  uint64_t soon_ = ~uint64_t{0}, keep_recent_ = 0, keep_new_ = ~uint64_t{0};
  // Since the limits were adapted:
  uint64_t added_new_ = 0, main_soon_ = 0, main_back_ = 0, recent_back_ = 0, evicted_ = 0, pushed_out_ = 0;
};

}  // namespace farside::plan
