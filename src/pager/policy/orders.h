// In which order the pages of one shard leave; one class for each policy. See sharded_policy.h for the functions.
#pragma once
#include "pager/policy/sharded_policy.h"

namespace farside::pager {

// First in, first out; or with kSecondChance, a page that is hot when its turn comes goes round once more.
template <bool kSecondChance>
class FifoOrder {
 public:
  static constexpr unsigned kPasses = 1;
  void add(PageIndex page, PageWord) { queue_.push(page); }
  uint64_t available(unsigned) const { return queue_.size(); }
  uint64_t queued() const { return queue_.size(); }

  Look look(PageTable& table, unsigned, bool spare_hot, PageIndex* page) {
    if (!queue_.pop(page)) return Look::kEmpty;
    if (!kSecondChance || !spare_hot || !cool(table, *page)) return Look::kOut;
    queue_.push(*page);
    return Look::kSpared;
  }

 private:
  PageQueue queue_;
};

// Generations of equal size, the pages in each from about the same time. Pages age from one to the next as the oldest
// are evicted, and whenever one is hot on the way it becomes young again. A page is therefore looked at, and its bit
// taken away, kGenerations times in a life: the time of its last use is known to that fraction of a life. (Second
// chance looks once, so a page used just after it came and one used just now are the same to it.) A page that comes has
// half a life to show that it is used again, so what is used once does not push out what is used often. One that comes
// back soon after it left is hot already and starts young.
class GenerationsOrder {
 public:
  static constexpr unsigned kPasses = 1;
  static constexpr unsigned kGenerations = 4;

  void add(PageIndex page, PageWord word) {
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
    if (cool(table, *page)) {
      generations_[kGenerations - 1].push(*page);
      return Look::kSpared;
    }
    if (from == 0) return Look::kOut;
    generations_[from - 1].push(*page);
    return Look::kMoved;
  }

 private:
  // The generation above the youngest one that is too small; 0, whose pages leave, if none is. Now and then any one, or
  // pages that were in use long ago would stay while those that come are used only once.
  unsigned next_to_age() {
    if (unsigned any = ++looks_ / kAnyway % kGenerations; looks_ % kAnyway == 0 && generations_[any].size() > 0)
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

  static constexpr unsigned kAnyway = 16;
  PageQueue generations_[kGenerations];  // 0: the oldest
  unsigned looks_ = 0;
};

// A queue for each priority; 3 leaves first. A few pages of each are kept while others can go, so that a page is not
// gone before the access that fetched it is over. Within a priority: second chance.
class PriorityOrder {
 public:
  static constexpr unsigned kLevels = 4;
  // One for each level from 3 down to 0, then another one for what the first ones kept.
  static constexpr unsigned kPasses = kLevels + 1;

  void add(PageIndex page, PageWord word) { levels_[word.priority()].push(page); }
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
    if (!moves && (!spare_hot || !cool(table, *page))) return Look::kOut;
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

  // A hint may give a page that is queued another priority. The queues from which nothing leaves while those above them
  // last are walked round slowly to find such pages.
  void refile_one(PageTable& table, unsigned above) {
    PageIndex page;
    if (levels_[hand_++ % above].pop(&page)) levels_[table[page].load().priority()].push(page);
  }

  PageQueue levels_[kLevels];
  unsigned hand_ = 0;
};

}  // namespace farside::pager
