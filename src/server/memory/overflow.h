// How much RAM the regions of a server use, and which of their pages go to a file when it is nearly full.
//
//   0                     - 1/16       memory      + 1/16 + a slab
//   |                        |           |             |
//   | pages that are read come back      |             |
//   |                        | cold pages leave        |
//   |                        |           | any pages leave
//   |                        |           |             | writes wait
//
// The calls about RAM are thread-safe. The others are for the thread that packs, which works in passes over all
// regions.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/bits.h"
#include "packed/layout.h"
#include "server/memory/overflow_file.h"
#include "wire/protocol.h"

namespace farside::server {

class Overflow {
 public:
  Overflow(std::unique_ptr<OverflowFile> file, uint64_t memory) : file_(std::move(file)), memory_(memory) {}

  OverflowFile* file() const { return file_.get(); }
  // What can be stored in both.
  uint64_t capacity() const { return memory_ + (file_->has_failed() ? file_->used_bytes() : file_->bytes()); }

  // RAM. False: there is no room.
  bool try_add(uint64_t bytes) {
    if (ram_.fetch_add(bytes) + bytes <= memory_ + memory_ / 16 + wire::kSlabBytes) return true;
    ram_ -= bytes;
    return false;
  }
  void correct(uint64_t from, uint64_t to) { ram_ += to - from; }
  uint64_t ram() const { return ram_; }
  // Whether there will be room soon where there is none now.
  bool is_moving_pages() const { return !is_stuck_ && !file_->has_failed(); }

  // What each region uses is exact now. The longer RAM is short, the warmer are the pages that leave.
  void begin_pass() {
    bool in_vain = excess_ > 0 && age_ == 0 && moved_ == 0;
    idle_passes_ = in_vain ? idle_passes_ + 1 : 0;
    is_stuck_ = idle_passes_ > 1;  // one may just have found out which slots are free
    file_->warn_if_nearly_full();
    uint64_t used = ram_, low = memory_ - memory_ / 16;
    excess_ = saturating_sub(used, low);
    room_ = saturating_sub(memory_, used);
    moved_ = 0;
    age_ = excess_ == 0 ? packed::kStaleAge : std::max(age_ / 2, used > memory_ ? 0U : 1U);
  }
  // The next pass may not wait.
  bool is_in_a_hurry() const { return is_moving_pages() && excess_ > memory_ / 16; }
  bool wants_pages() const { return moved_ < excess_ && !file_->has_failed(); }
  // Pages leave that were not used for so long, in units of PackedWord::kEpochsOfAge.
  uint32_t age() const { return age_; }
  void note_moved(uint64_t bytes) { moved_ += bytes; }
  bool take_room(uint64_t bytes) {
    if (room_ < bytes) return false;
    room_ -= bytes;
    return true;
  }

 private:
  const std::unique_ptr<OverflowFile> file_;
  const uint64_t memory_;
  std::atomic<uint64_t> ram_{0};
  std::atomic<bool> is_stuck_{false};
  // Of this pass, in bytes of RAM: to be freed, that were, and for pages that come back.
  uint64_t excess_ = 0, moved_ = 0, room_ = 0;
  uint32_t age_ = packed::kStaleAge;
  unsigned idle_passes_ = 0;  // in a row that moved nothing, where any page could leave
};

// What one region uses of it: an upper bound, which set() makes exact.
class RamShare {
 public:
  explicit RamShare(Overflow* overflow = nullptr) : overflow_(overflow) {}
  ~RamShare() { set(0); }
  RamShare(const RamShare&) = delete;
  RamShare& operator=(const RamShare&) = delete;
  void swap(RamShare& other) {
    std::swap(overflow_, other.overflow_);
    other.bytes_ = bytes_.exchange(other.bytes_);
  }

  Overflow* overflow() const { return overflow_; }
  bool try_add(uint64_t bytes) {
    if (!overflow_->try_add(bytes)) return false;
    bytes_ += bytes;
    return true;
  }
  void set(uint64_t bytes) {
    if (overflow_) overflow_->correct(bytes_.exchange(bytes), bytes);
  }

 private:
  Overflow* overflow_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace farside::server
