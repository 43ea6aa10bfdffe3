// Where the pool of a region has room: compressed pages are placed one after the other in blocks of 64 KiB, and a block
// is free when none of its pages is there any more. Blocks that have become mostly empty can be found, so that their
// pages are moved together. Says nothing about the bytes themselves. Not thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "packed/layout.h"

namespace farside::server {

class PoolLog {
 public:
  static constexpr uint64_t kBlockBytes = packed::kPoolBlockBytes;
  static constexpr uint64_t kNone = ~uint64_t{0};

  explicit PoolLog(uint64_t pool_bytes) : max_blocks_(pool_bytes / kBlockBytes) {}

  // A position for `bytes` of this page, a multiple of 8. kNone: the pool is full.
  uint64_t append(uint64_t page, size_t bytes);
  // The page is not at this position any more.
  void release(uint64_t position, size_t bytes);

  // The block with the least in it, if a quarter of the pool is empty, so that it is worth to move pages. kNone: none.
  uint64_t sparse_block() const;
  // The pages that were placed in the block since it was free; some may have left it.
  std::span<const uint64_t> pages(uint64_t block) const { return blocks_[block].pages; }
  // A block that has become free since, so that its memory can be released. kNone: no more.
  uint64_t take_freed();

  uint64_t used_bytes() const { return used_blocks_ * kBlockBytes; }
  uint64_t live_bytes() const { return live_; }

 private:
  struct Block {
    uint32_t live = 0;  // bytes
    std::vector<uint64_t> pages;
  };
  static uint64_t room_for(size_t bytes) { return align_up(bytes, 8); }
  bool open_block();
  void close_empty(uint64_t index);

  const uint64_t max_blocks_;
  std::vector<Block> blocks_;
  std::vector<uint64_t> free_;      // indexes of blocks
  std::vector<uint64_t> released_;  // of these, blocks that may still use memory
  uint64_t current_ = kNone;        // the block that is being filled
  uint64_t filled_ = 0;             // bytes of it
  uint64_t live_ = 0, used_blocks_ = 0;
};

}  // namespace farside::server
