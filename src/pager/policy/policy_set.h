// The policy of the process, and policies of address ranges (regions). Ranges with the same kind of policy share one
// Policy object, so their pages compete by age or priority and not by range. A page that is queued when its range is
// added or removed is evicted from the queue where it is: nothing is moved, lost or duplicated. Correctness does not
// depend on the policy in which a page is queued. Batches are taken from all policies in proportion to the number of
// queued pages.
//
// Cost: without ranges, one load and one virtual call more than the policy; with ranges, a binary search for each page
// that is made near, and a division into four shares for each batch.
#pragma once
#include <atomic>

#include "pager/policy/policy.h"

namespace farside::pager {

// Maps a page to its kind of policy: up to kMax ranges that do not overlap, sorted. Lookups take no lock and a bounded
// time; changes are rare.
class PolicyRanges {
 public:
  static constexpr unsigned kMax = 64;

  explicit PolicyRanges(PolicyKind others) : others_(others) {}
  PolicyKind others() const { return others_; }
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

  PolicyKind find(PageIndex page) const;

  // The caller's lock excludes concurrent changes. The caller has checked that nothing overlaps.
  void add(PageIndex first, PageIndex last, PolicyKind kind);
  bool remove(PageIndex first);
  bool overlaps(PageIndex first, PageIndex last) const;
  unsigned count() const { return count_.load(std::memory_order_relaxed); }

 private:
  //   63        32 31         0
  //  +------------+------------+
  //  | first page | last page  |   one word, so that a lookup reads both from the same range
  //  +------------+------------+
  struct Range {
    std::atomic<uint64_t> bounds{0};
    std::atomic<PolicyKind> kind{};
    PageIndex first() const { return static_cast<PageIndex>(bounds.load(std::memory_order_acquire) >> 32); }
    PageIndex last() const { return static_cast<PageIndex>(bounds.load(std::memory_order_acquire)); }
  };

  PolicyKind search(PageIndex page) const;
  void copy(unsigned to, unsigned from);
  void begin_change() { version_.fetch_add(1, std::memory_order_acq_rel); }
  void end_change() { version_.fetch_add(1, std::memory_order_release); }

  PolicyKind others_;
  std::atomic<uint32_t> version_{0};  // odd while ranges_ changes
  std::atomic<unsigned> count_{0};
  Range ranges_[kMax];
};

class PolicySet final : public Policy {
 public:
  PolicySet(PolicyKind others, PageTable& table);
  ~PolicySet() override;

  // Pages of [first, first + pages) that are made near from now on are queued in a policy of this kind. EINVAL: no
  // pages, not in far space, or overlapping another range; ENOSPC: kMax ranges exist. remove() identifies the range by
  // `first`. The caller's lock excludes concurrent add and remove; all other functions may run meanwhile.
  Status add(PageIndex first, uint64_t pages, PolicyKind kind);
  void remove(PageIndex first);

  void insert(unsigned shard, PageIndex page) override;
  size_t select(unsigned evictor, std::span<PageIndex> out) override;
  uint64_t queued() const override { return sum(&Policy::queued); }
  uint64_t surplus() const override { return sum(&Policy::surplus); }
  void set_elsewhere(uint64_t pages) override;
  const char* name() const override { return policy(ranges_.others())->name(); }
  bool is_hot(unsigned shard, PageIndex page, PageWord word, uint64_t age, uint64_t limit) override {
    return policy(ranges_.find(page))->is_hot(shard, page, word, age, limit);
  }

 private:
  Policy* policy(PolicyKind kind) const { return policies_[static_cast<size_t>(kind)].load(std::memory_order_acquire); }
  uint64_t sum(uint64_t (Policy::*pages)() const) const;
  size_t select_by_share(unsigned evictor, std::span<PageIndex> out);

  PageTable& table_;
  PolicyRanges ranges_;
  std::atomic<Policy*> policies_[kPolicyKinds] = {};  // created when first needed, and kept
  std::atomic<bool> several_{false};                  // more than one policy was created
  uint32_t turns_[kMaxEvictors] = {};
};

}  // namespace farside::pager
