// The order of the policy 2q (Johnson and Shasha), with the refault distance of the kernel's workingset.c in place of a
// ghost queue: a page's word keeps when it was evicted. Each shard has three queues.
//
//   main     pages that returned soon after their eviction: they are used again and again
//   new      pages that were touched for the first time after near memory was full
//   recent   the others: what a stream fetches passes through here and displaces nothing else
//
// The recent queue is small. While the program touches new pages, up to a quarter of near memory is theirs. The rest is
// main. Before near memory is full for the first time, all pages enter main: of a loop that does not fit, a part stays.
//
// Two limits adapt, after evictions of an eighth of near memory, to what becomes of the pages that main pushes out:
//   soon         the evictions after which a page that returns enters main. A page that enters main pushes another out.
//                If more than a half of those returns as soon, nothing was gained, and `soon` falls.
//   keep_recent  the pages of the recent queue. If it loses pages that return at once, and what main pushes out mostly
//                stays away, main holds what was used long ago, and the recent queue grows.
#pragma once
#include <algorithm>
#include <atomic>

#include "pager/policy/sharded_policy.h"

namespace farside::pager {

class TwoQueueOrder {
 public:
  // One pass for each queue, as far as it has more than it keeps, in this order; one for what they keep.
  enum Queue : unsigned { kRecent, kNew, kMain, kQueues };
  static constexpr unsigned kPasses = kQueues + 1;

  // What the shards have in common. Written by evictors, for each batch.
  struct Shared {
    std::atomic<bool> was_full{false};
    std::atomic<uint64_t> elsewhere{0};  // near pages that are in no queue of a policy
    std::atomic<uint64_t> soon{~uint64_t{0}};
    std::atomic<uint64_t> keep_recent{0};
    std::atomic<uint64_t> keep_new{~uint64_t{0}};
    std::atomic<uint64_t> evicted{0};     // pages selected since the limits were adapted,
    std::atomic<uint64_t> pushed_out{0};  // and those of main among them
  };

  void add(const Shared& shared, PageTable& table, PageIndex page, PageWord word) {
    // A pinned page, or one that was in main already, was selected and could not be evicted. In a queue whose pages are
    // selected first, such pages would hide all others.
    bool again = word.pins() > 0 || word.has(PageWord::kUpgrading) || word.has(PageWord::kMain);
    bool was_full = shared.was_full.load(std::memory_order_relaxed);
    if (again || word.has(PageWord::kHot) || !was_full) return add_to_main(table, page);
    if (word.has(PageWord::kStored)) return queues_[kRecent].push(page);
    counts_.added_new.fetch_add(1, std::memory_order_relaxed);
    queues_[kNew].push(page);
  }

  uint64_t queued() const {
    uint64_t sum = 0;
    for (const PageQueue& q : queues_) sum += q.size();
    return sum;
  }

  // As prepare() has divided it for the last batch.
  uint64_t surplus() const { return available(kRecent) + available(kNew); }

  uint64_t available(unsigned pass) const {
    if (pass == kQueues) return queued();
    return queues_[pass].size() - std::min(kept_[pass].load(std::memory_order_relaxed), queues_[pass].size());
  }

  Look look(PageTable& table, unsigned pass, bool spare_hot, PageIndex* page) {
    unsigned from = pass < kQueues ? pass : first_with_pages();
    if (!queues_[from].pop(page)) return Look::kEmpty;
    if (!spare_hot || !clear_hot(table, *page)) return Look::kOut;
    add_to_main(table, *page);
    return from == kMain ? Look::kSpared : Look::kMoved;
  }

  // Whether a page that returns after `age` evictions is hot. Called by faults, without the lock.
  bool is_hot(const Shared& shared, PageWord word, uint64_t age, uint64_t limit) {
    bool hot = age <= soon(shared, limit), was_main = word.has(PageWord::kMain);
    if (was_main && hot) counts_.soon.fetch_add(1, std::memory_order_relaxed);
    if (was_main && age <= limit) counts_.main.fetch_add(1, std::memory_order_relaxed);
    if (!was_main && age <= limit / kAtOnceShare) counts_.recent.fetch_add(1, std::memory_order_relaxed);
    return hot;
  }

  // Before a batch is selected, without the locks: divides what each kind of queue keeps among the shards.
  template <typename Shards>
  static void prepare(Shared& shared, Shards& shards, size_t batch) {
    if (!shared.was_full.load(std::memory_order_relaxed)) shared.was_full.store(true, std::memory_order_relaxed);
    uint64_t sizes[kQueues] = {};
    for (auto& s : shards) {
      for (unsigned q = 0; q < kQueues; q++) sizes[q] += s.order.queues_[q].size();
    }
    uint64_t all = sizes[kRecent] + sizes[kNew] + sizes[kMain];
    uint64_t keep_recent = limit_recent(shared.keep_recent.load(std::memory_order_relaxed), all);
    uint64_t keep_new = std::min(shared.keep_new.load(std::memory_order_relaxed), all / kNewShare);
    shared.keep_recent.store(keep_recent, std::memory_order_relaxed);
    uint64_t surplus = keep(shards, kRecent, sizes[kRecent], keep_recent) + keep(shards, kNew, sizes[kNew], keep_new);
    shared.pushed_out.fetch_add(batch - std::min<uint64_t>(batch, surplus), std::memory_order_relaxed);
    if (shared.evicted.fetch_add(batch, std::memory_order_relaxed) + batch >= all / kAdaptShare)
      adapt(shared, take_counts(shards), all);
  }

 private:
  static constexpr uint64_t kRecentShare = 32;  // the recent queue keeps at least this part of all queued pages,
  static constexpr uint64_t kMinRecent = 64;    // and so many pages, up to a quarter of them
  static constexpr uint64_t kNewShare = 4;      // new pages keep at most this part
  static constexpr uint64_t kAdaptShare = 8;
  static constexpr uint64_t kAtOnceShare = 8;  // a page returns at once: after evictions of this part of near memory

  // Pages that were added or returned since the limits were adapted.
  struct Counts {
    std::atomic<uint64_t> added_new{0};
    std::atomic<uint64_t> soon{0};    // left main, returned within Shared::soon
    std::atomic<uint64_t> main{0};    // left main, returned before as many pages were evicted as can be near
    std::atomic<uint64_t> recent{0};  // left another queue, would have been near in a recent queue of thrice the size
  };
  struct Sums {
    uint64_t added_new = 0, soon = 0, main = 0, recent = 0;
  };

  // The flag is a bit of the owner slot: it must not be set once the page is owned.
  void add_to_main(PageTable& table, PageIndex page) {
    queues_[kMain].push(page);
    table[page].update(
        [](PageWord w) { return w.is(PageState::kNear) ? w.with(PageWord::kMain).without(PageWord::kHot) : w; });
  }

  unsigned first_with_pages() const {
    unsigned queue = 0;
    while (queue < kMain && queues_[queue].size() == 0) queue++;
    return queue;
  }

  static uint64_t limit_recent(uint64_t pages, uint64_t all) {
    return std::clamp(pages, std::max(all / kRecentShare, std::min(kMinRecent, all / 4)), all - all / 8);
  }

  // No longer than a page of main stays: main and the recent queue together are near memory.
  static uint64_t soon(const Shared& shared, uint64_t limit) {
    return std::min(limit - limit / kRecentShare, shared.soon.load(std::memory_order_relaxed));
  }

  // Returns how many pages the queues of this kind have beyond what they keep.
  template <typename Shards>
  static uint64_t keep(Shards& shards, Queue queue, uint64_t size, uint64_t kept) {
    for (auto& s : shards) {
      uint64_t share = size == 0 ? 0 : kept * s.order.queues_[queue].size() / size;
      s.order.kept_[queue].store(static_cast<uint32_t>(share), std::memory_order_relaxed);
    }
    return size - std::min(size, kept);
  }

  template <typename Shards>
  static Sums take_counts(Shards& shards) {
    Sums sums;
    for (auto& s : shards) {
      Counts& c = s.order.counts_;
      sums.added_new += c.added_new.exchange(0, std::memory_order_relaxed);
      sums.soon += c.soon.exchange(0, std::memory_order_relaxed);
      sums.main += c.main.exchange(0, std::memory_order_relaxed);
      sums.recent += c.recent.exchange(0, std::memory_order_relaxed);
    }
    return sums;
  }

  // Evictors may do so at the same time; the limits are advice.
  static void adapt(Shared& shared, const Sums& returned, uint64_t all) {
    uint64_t pushed_out = shared.pushed_out.exchange(0, std::memory_order_relaxed);
    uint64_t evicted = shared.evicted.exchange(0, std::memory_order_relaxed);
    uint64_t limit = all + shared.elsewhere.load(std::memory_order_relaxed);
    uint64_t now = soon(shared, limit), recent = shared.keep_recent.load(std::memory_order_relaxed);
    if (2 * returned.soon > pushed_out) now -= now / 4;
    else if (4 * returned.soon <= pushed_out) now += limit / 64;
    if (4 * returned.main > 3 * pushed_out) recent -= recent / 2;
    else if (2 * returned.main <= pushed_out && 8 * returned.recent > evicted) recent += all / 16;
    else recent -= recent / 16;
    shared.soon.store(std::max(now, limit / 64 + 1), std::memory_order_relaxed);
    shared.keep_recent.store(recent, std::memory_order_relaxed);
    bool allocates = 8 * returned.added_new > evicted;
    uint64_t keep_new = std::min(shared.keep_new.load(std::memory_order_relaxed), all / kNewShare);
    shared.keep_new.store(allocates ? all / kNewShare : keep_new / 2, std::memory_order_relaxed);
  }

  PageQueue queues_[kQueues];
  std::atomic<uint32_t> kept_[kQueues] = {};  // pages that the pass of the queue leaves; 0 of main
  Counts counts_;
};

}  // namespace farside::pager
