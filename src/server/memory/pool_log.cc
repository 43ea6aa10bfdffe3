#include "server/memory/pool_log.h"

#include <utility>

#include "base/log.h"

namespace farside::server {

uint64_t PoolLog::append(uint64_t page, size_t bytes) {
  uint64_t room = room_for(bytes);
  bool fits = current_ != kNone && filled_ + room <= kBlockBytes;
  if (!fits && !open_block()) return kNone;
  Block& block = blocks_[current_];
  block.pages.push_back(page);
  block.live += static_cast<uint32_t>(room);
  live_ += room;
  return current_ * kBlockBytes + std::exchange(filled_, filled_ + room);
}

bool PoolLog::open_block() {
  if (free_.empty()) {
    if (blocks_.size() >= max_blocks_) return false;
    free_.push_back(blocks_.size());
    blocks_.emplace_back();
  }
  uint64_t before = std::exchange(current_, free_.back());
  free_.pop_back();
  if (before != kNone && blocks_[before].live == 0) close_empty(before);
  std::erase(released_, current_);
  filled_ = 0;
  used_blocks_++;
  return true;
}

void PoolLog::release(uint64_t position, size_t bytes) {
  uint64_t index = position / kBlockBytes, room = room_for(bytes);
  Block& block = blocks_[index];
  FARSIDE_CHECK(block.live >= room && live_ >= room);
  block.live -= static_cast<uint32_t>(room);
  live_ -= room;
  if (block.live == 0 && index != current_) close_empty(index);
}

void PoolLog::close_empty(uint64_t index) {
  blocks_[index].pages = {};
  free_.push_back(index);
  released_.push_back(index);
  used_blocks_--;
}

uint64_t PoolLog::sparse_block() const {
  constexpr uint64_t kWorthBytes = 16 * kBlockBytes;  // of empty room
  uint64_t empty = used_bytes() - live_;
  if (empty < kWorthBytes || empty < used_bytes() / 4) return kNone;
  uint64_t best = kNone;
  for (uint64_t i = 0; i < blocks_.size(); i++) {
    if (i == current_ || blocks_[i].live == 0) continue;
    if (best == kNone || blocks_[i].live < blocks_[best].live) best = i;
  }
  return best;
}

uint64_t PoolLog::take_freed() {
  if (released_.empty()) return kNone;
  uint64_t index = released_.back();
  released_.pop_back();
  return index;
}

}  // namespace farside::server
