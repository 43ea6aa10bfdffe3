// The order in which the pages of one shard are evicted; one class for each policy. sharded_policy.h describes the
// functions. All but queued() and available() are called under the shard's lock.
#pragma once
#include "pager/policy/sharded_policy.h"

namespace farside::pager {

// First in, first out. Hot bits are ignored.
class FifoOrder {
 public:
  using Shared = NothingShared;
  static constexpr unsigned kPasses = 1;
  void add(NothingShared&, PageTable&, PageIndex page, PageWord) { queue_.push(page); }
  uint64_t available(unsigned) const { return queue_.size(); }
  uint64_t queued() const { return queue_.size(); }

  Look look(PageTable&, unsigned, bool, PageIndex* page) { return queue_.pop(page) ? Look::kOut : Look::kEmpty; }

 private:
  PageQueue queue_;
};

// Generations of equal size; the pages in each were made near at about the same time. Pages age from one generation to
// the next as the oldest are evicted, and a page that is hot at such a step becomes young again. So a page is examined,
// and its hot bit cleared, kGenerations times before it is evicted, and the time of its last use is known to that
// fraction. (Second chance, as in CLOCK, examines a page once, and cannot distinguish a use just after the fetch from
// one just now.)
// A new page has half of that time to be used again, so pages that are used once do not displace pages that are used
// often. A page that is fetched again soon after its eviction is hot already and starts young.
class GenerationsOrder {
 public:
  using Shared = NothingShared;
  static constexpr unsigned kPasses = 1;
  static constexpr unsigned kGenerations = 4;

  void add(NothingShared&, PageTable&, PageIndex page, PageWord word) {
    generations_[word.has(PageWord::kHot) ? kGenerations - 1 : kGenerations / 2 - 1].push(page);
  }
  uint64_t available(unsigned) const { return queued(); }
  uint64_t queued() const {
    uint64_t sum = 0;
    for (const PageQueue& g : generations_) sum += g.size();
    return sum;
  }

  Look look(PageTable& table, unsigned, bool spare_hot, PageIndex* page) {
    if (!spare_hot) return pop_oldest(page);
    unsigned from = next_to_age();
    if (!generations_[from].pop(page)) return Look::kEmpty;
    if (clear_hot(table, *page)) {
      generations_[kGenerations - 1].push(*page);
      return Look::kSpared;
    }
    if (from == 0) return Look::kOut;
    generations_[from - 1].push(*page);
    return Look::kMoved;
  }

 private:
  // The generation above the youngest one that is too small; 0, whose pages are evicted, if none is. At every 16th call
  // any generation, or pages that were in use long ago would stay while new pages are used only once.
  unsigned next_to_age() {
    if (unsigned any = ++looks_ / kAnyPeriod % kGenerations; looks_ % kAnyPeriod == 0 && generations_[any].size() > 0)
      return any;
    uint64_t wanted = queued() / kGenerations;
    for (unsigned i = kGenerations - 1; i > 0; i--) {
      if (generations_[i].size() > 0 && generations_[i - 1].size() <= wanted) return i;
    }
    return 0;
  }

  Look pop_oldest(PageIndex* page) {
    for (PageQueue& g : generations_) {
      if (g.pop(page)) return Look::kOut;
    }
    return Look::kEmpty;
  }

  static constexpr unsigned kAnyPeriod = 16;
  PageQueue generations_[kGenerations];  // 0: the oldest
  unsigned looks_ = 0;
};

// A queue for each priority; 3 is evicted first. A few pages of each are kept while others can be evicted, so that a
// page is not evicted before the access that fetched it has completed. Within a priority first in, first out, and a
// page that is hot at its turn is inserted again.
class PriorityOrder {
 public:
  using Shared = NothingShared;
  static constexpr unsigned kLevels = 4;
  // One pass for each level from 3 down to 0, then one for the pages that these passes kept.
  static constexpr unsigned kPasses = kLevels + 1;

  void add(NothingShared&, PageTable&, PageIndex page, PageWord word) { levels_[word.priority()].push(page); }
  uint64_t queued() const {
    uint64_t sum = 0;
    for (const PageQueue& q : levels_) sum += q.size();
    return sum;
  }
  uint64_t available(unsigned pass) const {
    if (pass == kLevels) return queued();
    unsigned level = kLevels - 1 - pass;
    uint64_t kept = level == 0 ? 0 : queued() / kKeptShare;
    return levels_[level].size() > kept ? levels_[level].size() - kept : 0;
  }

  Look look(PageTable& table, unsigned pass, bool spare_hot, PageIndex* page) {
    if (available(pass) == 0) return Look::kEmpty;
    unsigned level = pass == kLevels ? highest() : kLevels - 1 - pass;
    if (level > 0) refile_one(table, level);
    if (!levels_[level].pop(page)) return Look::kEmpty;
    unsigned now = table[*page].load().priority();
    bool moves = now != level;
    if (!moves && (!spare_hot || !clear_hot(table, *page))) return Look::kOut;
    levels_[now].push(*page);
    return moves ? Look::kMoved : Look::kSpared;
  }

 private:
  static constexpr uint64_t kKeptShare = 32;

  unsigned highest() const {
    unsigned level = kLevels - 1;
    while (level > 0 && levels_[level].size() == 0) level--;
    return level;
  }

  // A hint may change the priority of a queued page. The queues from which nothing is evicted as long as those of
  // higher priority suffice are searched slowly for such pages.
  void refile_one(PageTable& table, unsigned above) {
    PageIndex page;
    if (levels_[hand_++ % above].pop(&page)) levels_[table[page].load().priority()].push(page);
  }

  PageQueue levels_[kLevels];
  unsigned hand_ = 0;
};

}  // namespace farside::pager
