// The common base of all policies: shards with a lock each, at most one queue entry for each page, batches in
// proportion to the shards. An Order, one for each shard, has the queues and determines which page is next:
//   kPasses                             passes of one select; a later pass runs if the earlier ones found too few pages
//   add(table, page, word)              the page was made near
//   Shared                              what the shards have in common. Such an order also has prepare() and is_hot()
//   available(pass), queued()           entries that the pass may take; all entries. Called without the lock
//   look(table, pass, spare_hot, &page) examines one entry, in a few dozen instructions
#pragma once
#include <type_traits>

#include "base/log.h"
#include "base/sync.h"
#include "pager/policy/page_queue.h"
#include "pager/policy/policy.h"
#include "pager/policy/shares.h"

namespace farside::pager {

enum class Look {
  kEmpty,   // nothing left for this pass
  kSpared,  // the entry was hot, and was inserted again
  kMoved,   // the entry was moved to another queue
  kOut,     // the entry was removed
};

// Clears the hot bit of a near page. Returns whether it was set.
inline bool clear_hot(PageTable& table, PageIndex page) {
  PageWord word = table[page].load();
  if (!word.is(PageState::kNear) || !word.has(PageWord::kHot)) return false;
  table[page].clear(PageWord::kHot);
  return true;
}

// For an order whose shards have nothing in common.
struct NothingShared {};

template <typename Order>
class ShardedPolicy final : public Policy {
 public:
  ShardedPolicy(PageTable& table, const char* name) : table_(table), name_(name) {}

  void insert(unsigned shard, PageIndex page) override {
    // At most one entry for each page exists, so the queues are bounded however often a page is fetched.
    PageWord before = table_[page].set(PageWord::kQueued);
    if (before.has(PageWord::kQueued)) return;
    Shard& s = shards_[shard % kShards];
    LockGuard guard(s.lock);
    s.order.add(shared_, table_, page, before);
  }

  size_t select(unsigned evictor, std::span<PageIndex> out) override {
    evictor %= kMaxEvictors;
    uint32_t turn = turns_[evictor]++;
    unsigned first = evictor * (kShards / kMaxEvictors);  // evictors that start together take different locks
    if constexpr (kAdapts) Order::prepare(shared_, shards_, out.size());
    size_t count = 0;
    for (unsigned pass = 0; pass < Order::kPasses && count < out.size(); pass++) {
      count += select_by_share(pass, turn, first, out.subspan(count));
      // Shards with entries of pages that are not near gave fewer pages than their share.
      for (unsigned i = 0; i < kShards && count < out.size(); i++) {
        count += take(shards_[(first + turn + i) % kShards], pass, out.subspan(count));
      }
    }
    FARSIDE_DCHECK(count <= out.size());
    return count;
  }

  uint64_t queued() const override {
    uint64_t sum = 0;
    for (const Shard& s : shards_) sum += s.order.queued();
    return sum;
  }

  uint64_t surplus() const override {
    uint64_t sum = 0;
    if constexpr (kAdapts) {
      for (const Shard& s : shards_) sum += s.order.surplus();
    }
    return sum;
  }

  void set_elsewhere(uint64_t pages) override {
    if constexpr (kAdapts) shared_.elsewhere.store(pages, std::memory_order_relaxed);
  }

  const char* name() const override { return name_; }

  bool is_hot(unsigned shard, PageIndex, PageWord word, uint64_t age, uint64_t limit) override {
    if constexpr (kAdapts) return shards_[shard % kShards].order.is_hot(shared_, word, age, limit);
    else return age <= limit / 4;
  }

 private:
  static constexpr bool kAdapts = !std::is_same_v<typename Order::Shared, NothingShared>;
  static constexpr unsigned kShards = 16;
  // Limits for each page of a batch. If every page is hot, hot pages are taken after kMaxSpared; and entries of pages
  // that are not near, however many, do not delay the evictor without bound.
  static constexpr size_t kMaxSpared = 16;
  static constexpr size_t kMaxLooks = 32;

  struct alignas(kCacheLine) Shard {
    SpinLock lock;  // guards order, except for the sizes of its queues
    Order order;
  };

  size_t select_by_share(unsigned pass, uint32_t turn, unsigned first, std::span<PageIndex> out) {
    uint64_t sizes[kShards];
    size_t shares[kShards], count = 0;
    for (unsigned i = 0; i < kShards; i++) sizes[i] = shards_[i].order.available(pass);
    share_out(out.size(), turn, sizes, shares);
    for (unsigned i = 0; i < kShards; i++) {
      unsigned s = (first + i) % kShards;
      if (shares[s] > 0) count += take(shards_[s], pass, out.subspan(count, shares[s]));
    }
    return count;
  }

  size_t take(Shard& shard, unsigned pass, std::span<PageIndex> out) {
    if (shard.order.available(pass) == 0) return 0;
    size_t count = 0, spared = 0;
    for (size_t looks = 0; count < out.size() && looks < kMaxLooks * out.size(); looks++) {
      PageIndex page;
      Look look = look_at(shard, pass, spared < kMaxSpared * out.size(), &page);
      if (look == Look::kEmpty) break;
      spared += look == Look::kSpared;
      // The state at the moment of unqueueing decides: a fetcher that publishes later inserts a new entry.
      if (look != Look::kOut) continue;
      PageWord before = table_[page].clear(PageWord::kQueued);
      FARSIDE_CHECK(before.has(PageWord::kQueued));
      if (before.is(PageState::kNear)) out[count++] = page;
    }
    return count;
  }

  Look look_at(Shard& shard, unsigned pass, bool spare_hot, PageIndex* page) {
    LockGuard guard(shard.lock);
    return shard.order.look(table_, pass, spare_hot, page);
  }

  PageTable& table_;
  const char* name_;
  typename Order::Shared shared_;
  uint32_t turns_[kMaxEvictors] = {};
  Shard shards_[kShards];
};

}  // namespace farside::pager
