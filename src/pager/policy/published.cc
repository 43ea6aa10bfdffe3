#include "pager/policy/published.h"

#include <algorithm>
#include <list>

namespace farside::pager {
namespace {

// Lists of pages, each page in one at most; the newest is at the front.
class Lists {
 public:
  static constexpr unsigned kNone = ~0u;

  Lists(PageIndex pages, unsigned lists) : lists_(lists), where_(pages, kNone), place_(pages) {}

  unsigned where(PageIndex page) const { return where_[page]; }
  size_t size(unsigned list) const { return lists_[list].size(); }
  PageIndex oldest(unsigned list) const { return lists_[list].back(); }

  void push(unsigned list, PageIndex page) {
    remove(page);
    lists_[list].push_front(page);
    where_[page] = list;
    place_[page] = lists_[list].begin();
  }
  void remove(PageIndex page) {
    if (where_[page] != kNone) lists_[where_[page]].erase(place_[page]);
    where_[page] = kNone;
  }
  PageIndex pop(unsigned list) {
    PageIndex page = oldest(list);
    remove(page);
    return page;
  }

 private:
  std::vector<std::list<PageIndex>> lists_;
  std::vector<unsigned> where_;
  std::vector<std::list<PageIndex>::iterator> place_;
};

class KernelLists {
 public:
  KernelLists(PageIndex pages, uint64_t limit)
      : limit_(limit), lists_(pages, 2), referenced_(pages), evicted_at_(pages, kNever) {}

  bool access(PageIndex page) {
    if (lists_.where(page) != Lists::kNone) {
      referenced_[page] = true;
      return true;
    }
    if (lists_.size(kActive) + lists_.size(kInactive) == limit_) evict();
    bool refault = evicted_at_[page] != kNever && age_ - evicted_at_[page] <= lists_.size(kActive);
    refault ? activate(page) : lists_.push(kInactive, page);
    referenced_[page] = false;
    return false;
  }

 private:
  enum : unsigned { kActive, kInactive };
  static constexpr uint64_t kNever = ~uint64_t{0};

  void activate(PageIndex page) {
    lists_.push(kActive, page);
    age_++;
  }

  void evict() {
    for (;;) {
      while (lists_.size(kInactive) <= lists_.size(kActive) && lists_.size(kActive) > 0) {
        PageIndex page = lists_.pop(kActive);
        referenced_[page] = false;
        lists_.push(kInactive, page);
      }
      PageIndex page = lists_.pop(kInactive);
      if (!referenced_[page]) {
        evicted_at_[page] = age_++;
        return;
      }
      referenced_[page] = false;
      activate(page);
    }
  }

  uint64_t limit_, age_ = 0;  // evictions and activations
  Lists lists_;
  std::vector<bool> referenced_;
  std::vector<uint64_t> evicted_at_;
};

class Arc {
 public:
  Arc(PageIndex pages, uint64_t limit, Uses uses) : limit_(limit), uses_(uses), lists_(pages, 4) {}

  bool access(PageIndex page) {
    unsigned where = lists_.where(page);
    if (where == kOnce || where == kOften) {
      if (uses_ == Uses::kSeen) lists_.push(kOften, page);
      return true;
    }
    if (where == Lists::kNone) return enter(page);
    size_t once = lists_.size(kOnceGone), often = lists_.size(kOftenGone);
    if (where == kOnceGone) target_ = std::min<uint64_t>(limit_, target_ + std::max<size_t>(1, often / once));
    else target_ -= std::min<uint64_t>(target_, std::max<size_t>(1, once / often));
    replace(where == kOftenGone);
    lists_.push(kOften, page);
    return false;
  }

 private:
  enum : unsigned { kOnce, kOften, kOnceGone, kOftenGone };

  bool enter(PageIndex page) {
    size_t first = lists_.size(kOnce) + lists_.size(kOnceGone);
    size_t all = first + lists_.size(kOften) + lists_.size(kOftenGone);
    if (first == limit_) {
      if (lists_.size(kOnceGone) > 0) {
        lists_.pop(kOnceGone);
        replace(false);
      } else {
        lists_.pop(kOnce);
      }
    } else if (all >= limit_) {
      if (all == 2 * limit_) lists_.pop(kOftenGone);
      replace(false);
    }
    lists_.push(kOnce, page);
    return false;
  }

  void replace(bool was_often) {
    size_t once = lists_.size(kOnce), often = lists_.size(kOften);
    if (once + often < limit_) return;
    bool from_once = once > 0 && (once > target_ || (was_often && once == target_) || often == 0);
    unsigned from = from_once ? kOnce : kOften;
    lists_.push(from_once ? kOnceGone : kOftenGone, lists_.oldest(from));
  }

  uint64_t limit_, target_ = 0;  // pages that kOnce should have
  Uses uses_;
  Lists lists_;
};

class S3Fifo {
 public:
  S3Fifo(PageIndex pages, uint64_t limit, Uses uses)
      : limit_(limit), small_(std::max<uint64_t>(1, limit / 10)), uses_(uses), lists_(pages, 3), used_(pages) {}

  bool access(PageIndex page) {
    unsigned where = lists_.where(page);
    if (where == kSmall || where == kMain) {
      if (uses_ == Uses::kSeen && used_[page] < kMaxUses) used_[page]++;
      return true;
    }
    while (lists_.size(kSmall) + lists_.size(kMain) >= limit_) evict();
    lists_.push(lists_.where(page) == kGone ? kMain : kSmall, page);
    used_[page] = 0;
    return false;
  }

 private:
  enum : unsigned { kSmall, kMain, kGone };
  static constexpr uint8_t kMaxUses = 3;

  void evict() {
    if (lists_.size(kSmall) >= small_ || lists_.size(kMain) == 0) return evict_from_small();
    PageIndex page = lists_.oldest(kMain);
    if (used_[page] == 0) return lists_.remove(page);
    used_[page]--;
    lists_.push(kMain, page);
  }

  void evict_from_small() {
    PageIndex page = lists_.oldest(kSmall);
    if (used_[page] > 1) {
      used_[page] = 0;
      return lists_.push(kMain, page);
    }
    lists_.push(kGone, page);
    if (lists_.size(kGone) > limit_ - small_) lists_.pop(kGone);
  }

  uint64_t limit_, small_;
  Uses uses_;
  Lists lists_;
  std::vector<uint8_t> used_;
};

template <typename Cache>
Outcome simulate(const Trace& trace, Cache cache) {
  Outcome outcome;
  for (PageIndex page : trace.accesses) cache.access(page) ? outcome.hits++ : outcome.misses++;
  return outcome;
}

}  // namespace

Outcome simulate_kernel_lists(const Trace& trace, uint64_t near_pages) {
  return simulate(trace, KernelLists(trace.pages, near_pages));
}

Outcome simulate_arc(const Trace& trace, uint64_t near_pages, Uses uses) {
  return simulate(trace, Arc(trace.pages, near_pages, uses));
}

Outcome simulate_s3_fifo(const Trace& trace, uint64_t near_pages, Uses uses) {
  return simulate(trace, S3Fifo(trace.pages, near_pages, uses));
}

}  // namespace farside::pager
