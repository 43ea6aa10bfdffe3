#include "pager/policy.h"

#include <utility>

#include "base/sync.h"

namespace farside::pager {
namespace {

// A first-in-first-out queue of page numbers in linked chunks of near memory.
class PageQueue {
 public:
  PageQueue() = default;
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;
  ~PageQueue() {
    for (Chunk* c = head_; c;) near_free(std::exchange(c, c->next), sizeof(Chunk));
  }

  void push(PageIndex page) {
    if (!tail_ || tail_->end == Chunk::kRoom) append_chunk();
    tail_->pages[tail_->end++] = page;
  }

  bool pop(PageIndex* page) {
    if (head_ && head_->begin == head_->end) drop_chunk();
    if (!head_ || head_->begin == head_->end) return false;
    *page = head_->pages[head_->begin++];
    return true;
  }

 private:
  struct Chunk {
    static constexpr unsigned kRoom = 1020;
    Chunk* next;
    uint32_t begin, end;
    PageIndex pages[kRoom];
  };
  static_assert(sizeof(Chunk) <= 4096);

  void append_chunk() {
    auto* chunk = static_cast<Chunk*>(near_alloc(sizeof(Chunk)));
    if (tail_) tail_->next = chunk;
    else head_ = chunk;
    tail_ = chunk;
  }

  // The head chunk is empty: free it, or start it anew if it is the only one.
  void drop_chunk() {
    Chunk* old = head_;
    if (old == tail_) {
      old->begin = old->end = 0;
      return;
    }
    head_ = old->next;
    near_free(old, sizeof(Chunk));
  }

  Chunk* head_ = nullptr;
  Chunk* tail_ = nullptr;
};

constexpr unsigned kShards = 16;

struct alignas(kCacheLine) Shard {
  SpinLock lock;  // guards queue
  PageQueue queue;
};

class QueuePolicy : public Policy {
 public:
  QueuePolicy(PageTable& table, bool second_chance) : table_(table), second_chance_(second_chance) {}

  void insert(unsigned shard, PageIndex page) override {
    // At most one entry per page exists, so the queues stay bounded however often a page comes and goes.
    if (table_[page].set(PageWord::kQueued).has(PageWord::kQueued)) return;
    push(shards_[shard % kShards], page);
  }

  size_t select(unsigned evictor, std::span<PageIndex> out) override {
    size_t count = 0;
    // Each evictor starts at another shard; shards take turns so that old pages of all threads leave alike.
    unsigned start = next_[evictor % kMaxEvictors]++ + evictor * (kShards / kMaxEvictors);
    for (unsigned i = 0; i < kShards && count < out.size(); i++) {
      count += take(shards_[(start + i) % kShards], out.subspan(count));
    }
    return count;
  }

  const char* name() const override { return second_chance_ ? "second-chance" : "fifo"; }

 private:
  static constexpr unsigned kMaxEvictors = 4;

  static void push(Shard& shard, PageIndex page) {
    LockGuard guard(shard.lock);
    shard.queue.push(page);
  }

  size_t take(Shard& shard, std::span<PageIndex> out) {
    size_t count = 0;
    // Twice round at most: when every page is hot, the first ones must go after all.
    for (size_t looked = 0; count < out.size() && looked < 2 * out.size(); looked++) {
      LockGuard guard(shard.lock);
      PageIndex page;
      if (!shard.queue.pop(&page)) break;
      PageWord word = table_[page].load();
      if (second_chance_ && word.is(PageState::kNear) && word.has(PageWord::kHot)) {
        table_[page].clear(PageWord::kHot);
        shard.queue.push(page);
        continue;
      }
      // The state at the very moment of unqueueing decides: a fetcher that publishes later inserts a new entry.
      if (table_[page].clear(PageWord::kQueued).is(PageState::kNear)) out[count++] = page;
    }
    return count;
  }

  PageTable& table_;
  bool second_chance_;
  unsigned next_[kMaxEvictors] = {};
  Shard shards_[kShards];
};

}  // namespace

Policy* new_fifo_policy(PageTable& table) { return new QueuePolicy(table, false); }
Policy* new_second_chance_policy(PageTable& table) { return new QueuePolicy(table, true); }

}  // namespace farside::pager
