#include "pager/policy/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <numeric>
#include <queue>
#include <random>

#include "pager/policy/new_policy.h"

namespace farside::pager {
namespace {

constexpr unsigned kThreads = 4;
constexpr uint64_t kMaxBatch = 128;

// Draws ranks by Zipf's law from the table of their cumulated weights.
class Zipf {
 public:
  Zipf(PageIndex pages, double skew, std::mt19937_64& random) : cumulated_(pages), page_of_(pages) {
    double sum = 0;
    for (PageIndex rank = 0; rank < pages; rank++) cumulated_[rank] = sum += std::pow(rank + 1, -skew);
    std::iota(page_of_.begin(), page_of_.end(), PageIndex{0});
    std::shuffle(page_of_.begin(), page_of_.end(), random);
  }
  PageIndex draw(std::mt19937_64& random) const {
    double at = std::uniform_real_distribution<>(0, cumulated_.back())(random);
    auto rank = std::lower_bound(cumulated_.begin(), cumulated_.end(), at) - cumulated_.begin();
    return page_of_[std::min<size_t>(static_cast<size_t>(rank), page_of_.size() - 1)];
  }

 private:
  std::vector<double> cumulated_;
  std::vector<PageIndex> page_of_;
};

// The pager without memory: changes page words as FetchPath::publish and Evictor do.
class PolicySimulation {
 public:
  PolicySimulation(const Trace& trace, uint64_t near_pages, PolicyKind kind, Known known)
      : trace_(trace),
        limit_(near_pages),
        known_(known),
        table_(nullptr, trace.pages * kPageSize),
        policy_(new_policy(kind, table_)),
        batch_(std::clamp<uint64_t>(near_pages / 64, 1, kMaxBatch)) {}

  Outcome run() {
    Outcome outcome;
    std::mt19937 random(7);
    for (PageIndex page : trace_.accesses) {
      PageWord word = table_[page].load();
      bool near = word.is(PageState::kNear);
      near ? outcome.hits++ : outcome.misses++;
      if (!near) make_near(random() % kThreads, page, word);
      else if (known_ != Known::kFaults) table_[page].set(PageWord::kHot);
    }
    return outcome;
  }

 private:
  void make_near(unsigned thread, PageIndex page, PageWord before) {
    while (near_ == limit_) evict();
    near_++;
    bool hot = before.is(PageState::kFar) && policy_->is_hot(thread, page, before, age_of(before), limit_);
    uint64_t stored = before.is(PageState::kFar) ? PageWord::kStored : 0;
    uint64_t priority =
        known_ == Known::kPriority && page >= trace_.once_from ? uint64_t{3} << PageWord::kPriorityShift : 0;
    table_[page].force(
        before.with_state(PageState::kNear).with_owner(0).with((hot ? PageWord::kHot : 0) | stored | priority));
    policy_->insert(thread, page);
  }

  void evict() {
    PageIndex pages[kMaxBatch];
    size_t found = policy_->select(0, {pages, batch_});
    evicted_ += found;
    near_ -= found;
    for (size_t i = 0; i < found; i++) {
      PageWord w = table_[pages[i]].load();
      table_[pages[i]].force(
          w.with_state(PageState::kFar).without(PageWord::kHot).with_epoch(static_cast<uint16_t>(evicted_ / kEpoch)));
    }
  }

  uint64_t age_of(PageWord word) const {
    return kEpoch * static_cast<uint16_t>(static_cast<uint16_t>(evicted_ / kEpoch) - word.epoch());
  }

  static constexpr uint64_t kEpoch = 256;
  const Trace& trace_;
  uint64_t limit_;
  Known known_;
  PageTable table_;
  std::unique_ptr<Policy> policy_;
  uint64_t batch_, near_ = 0, evicted_ = 0;
};

// For each access, the index of the next access to the same page.
std::vector<size_t> next_uses(const Trace& trace) {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<size_t> next(trace.accesses.size()), seen(trace.pages, kNever);
  for (size_t i = trace.accesses.size(); i-- > 0;) {
    next[i] = seen[trace.accesses[i]];
    seen[trace.accesses[i]] = i;
  }
  return next;
}

}  // namespace

Trace zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  Zipf zipf(pages, skew, random);
  Trace trace{"zipf " + std::to_string(skew).substr(0, 4), pages, pages, {}};
  trace.accesses.reserve(length);
  while (trace.accesses.size() < length) trace.accesses.push_back(zipf.draw(random));
  return trace;
}

Trace scan_zipf_trace(PageIndex pages, double skew, size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  PageIndex half = pages / 2;
  Zipf zipf(half, skew, random);
  Trace trace{"scan + zipf " + std::to_string(skew).substr(0, 4), pages, half, {}};
  for (size_t i = 0; i < length; i++) {
    trace.accesses.push_back(i % 2 == 0 ? zipf.draw(random) : half + static_cast<PageIndex>(i / 2 % (pages - half)));
  }
  return trace;
}

Trace loop_trace(PageIndex pages, size_t length) {
  Trace trace{"loop", pages, pages, {}};
  for (size_t i = 0; i < length; i++) trace.accesses.push_back(static_cast<PageIndex>(i % pages));
  return trace;
}

Trace phases_trace(PageIndex pages, unsigned phases, size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  Trace trace{"phases", pages, pages, {}};
  PageIndex part = 2 * pages / (phases + 1);
  for (size_t i = 0; i < length; i++) {
    auto first = static_cast<PageIndex>(i * phases / length * part / 2);
    trace.accesses.push_back(first + static_cast<PageIndex>(random() % part));
  }
  return trace;
}

Trace hot_stream_trace(PageIndex pages, PageIndex hot_pages, unsigned hot, size_t length, uint64_t seed) {
  std::mt19937_64 random(seed);
  Trace trace{"hot set beside a stream", pages, hot_pages, {}};
  for (size_t i = 0; i < length; i++) {
    auto turn = static_cast<PageIndex>(i / (hot + 1));
    bool streams = i % (hot + 1) == 0;
    trace.accesses.push_back(streams ? hot_pages + turn % (pages - hot_pages)
                                     : static_cast<PageIndex>(random() % hot_pages));
  }
  return trace;
}

Outcome simulate_policy(const Trace& trace, uint64_t near_pages, PolicyKind kind, Known known) {
  return PolicySimulation(trace, near_pages, kind, known).run();
}

Outcome simulate_exact_lru(const Trace& trace, uint64_t near_pages) {
  Outcome outcome;
  std::list<PageIndex> order;  // least recently used first
  std::vector<std::list<PageIndex>::iterator> place(trace.pages, order.end());
  for (PageIndex page : trace.accesses) {
    if (place[page] != order.end()) {
      outcome.hits++;
      order.splice(order.end(), order, place[page]);
      continue;
    }
    outcome.misses++;
    if (order.size() == near_pages) {
      place[order.front()] = order.end();
      order.pop_front();
    }
    place[page] = order.insert(order.end(), page);
  }
  return outcome;
}

Outcome simulate_optimum(const Trace& trace, uint64_t near_pages) {
  Outcome outcome;
  std::vector<size_t> next = next_uses(trace);
  std::vector<bool> near(trace.pages);
  std::vector<size_t> use(trace.pages);                    // the page's next use
  std::priority_queue<std::pair<size_t, PageIndex>> last;  // by next use; entries of older uses are skipped
  uint64_t used = 0;
  for (size_t i = 0; i < trace.accesses.size(); i++) {
    PageIndex page = trace.accesses[i];
    near[page] ? outcome.hits++ : outcome.misses++;
    while (!near[page] && used == near_pages) {
      auto [when, victim] = last.top();
      last.pop();
      if (!near[victim] || use[victim] != when) continue;
      near[victim] = false;
      used--;
    }
    used += near[page] ? 0 : 1;
    near[page] = true;
    use[page] = next[i];
    last.emplace(next[i], page);
  }
  return outcome;
}

namespace {

class ProbationSimulation {
 public:
  ProbationSimulation(const Trace& trace, uint64_t near_pages, double probation)
      : trace_(trace),
        limit_(near_pages),
        max_mapped_(near_pages - static_cast<uint64_t>(static_cast<double>(near_pages) * probation)),
        place_(trace.pages, Place::kFar),
        life_(trace.pages) {}

  Outcome run() {
    Outcome outcome;
    for (PageIndex page : trace_.accesses) {
      Place was = place_[page];
      was == Place::kFar ? outcome.misses++ : outcome.hits++;
      outcome.soft_faults += was == Place::kUnmapped;
      if (was != Place::kMapped) map(page, was);
    }
    return outcome;
  }

 private:
  enum class Place : uint8_t { kFar, kMapped, kUnmapped };
  struct Entry {
    PageIndex page;
    uint32_t life;  // of the page, when it was unmapped; entries of earlier lives are skipped
  };

  void map(PageIndex page, Place was) {
    if (was == Place::kUnmapped) unmapped_count_--;
    else if (mapped_.size() + unmapped_count_ == limit_) evict_one();
    if (mapped_.size() == max_mapped_) unmap_oldest();
    place_[page] = Place::kMapped;
    life_[page]++;
    mapped_.push_back(page);
  }

  void unmap_oldest() {
    PageIndex page = mapped_.front();
    mapped_.pop_front();
    place_[page] = Place::kUnmapped;
    unmapped_.push_back({page, life_[page]});
    unmapped_count_++;
  }

  void evict_one() {
    if (unmapped_count_ == 0) unmap_oldest();
    for (;;) {
      Entry e = unmapped_.front();
      unmapped_.pop_front();
      if (place_[e.page] != Place::kUnmapped || life_[e.page] != e.life) continue;
      place_[e.page] = Place::kFar;
      unmapped_count_--;
      return;
    }
  }

  const Trace& trace_;
  uint64_t limit_, max_mapped_, unmapped_count_ = 0;
  std::vector<Place> place_;
  std::vector<uint32_t> life_;
  std::deque<PageIndex> mapped_;  // oldest first, as is unmapped_
  std::deque<Entry> unmapped_;
};

}  // namespace

Outcome simulate_probation(const Trace& trace, uint64_t near_pages, double probation) {
  return ProbationSimulation(trace, near_pages, probation).run();
}

}  // namespace farside::pager
