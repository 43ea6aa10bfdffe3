// A first-in-first-out queue of page numbers in linked chunks of near memory. The lock of its owner guards it; size()
// may be called without the lock.
#pragma once
#include <atomic>
#include <utility>

#include "base/log.h"
#include "base/near.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

class PageQueue {
 public:
  PageQueue() = default;
  PageQueue(const PageQueue&) = delete;
  PageQueue& operator=(const PageQueue&) = delete;
  ~PageQueue() {
    for (Chunk* c = head_; c;) near_free(std::exchange(c, c->next), sizeof(Chunk));
  }

  uint32_t size() const { return size_.load(std::memory_order_relaxed); }

  void push(PageIndex page) {
    if (!tail_ || tail_->end == Chunk::kRoom) append_chunk();
    FARSIDE_DCHECK(tail_->end < Chunk::kRoom);
    tail_->pages[tail_->end++] = page;
    size_.store(size() + 1, std::memory_order_relaxed);
  }

  bool pop(PageIndex* page) {
    if (head_ && head_->begin == head_->end) drop_chunk();
    if (!head_ || head_->begin == head_->end) return false;
    FARSIDE_DCHECK(size() > 0 && head_->begin < head_->end && head_->end <= Chunk::kRoom);
    *page = head_->pages[head_->begin++];
    size_.store(size() - 1, std::memory_order_relaxed);
    return true;
  }

 private:
  // Small, since a policy has up to a hundred queues, many of them almost empty.
  struct Chunk {
    static constexpr unsigned kRoom = 252;
    Chunk* next;
    uint32_t begin, end;
    PageIndex pages[kRoom];
  };
  static_assert(sizeof(Chunk) == 1024);

  void append_chunk() {
    auto* chunk = static_cast<Chunk*>(near_alloc(sizeof(Chunk)));
    if (tail_) tail_->next = chunk;
    else head_ = chunk;
    tail_ = chunk;
  }

  // The head chunk is empty: frees it, or resets it if it is the only one.
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
  std::atomic<uint32_t> size_{0};
};

}  // namespace farside::pager
