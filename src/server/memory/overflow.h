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

  // RAM. False: there is no room; the caller waits if is_moving_pages().
  bool try_add(uint64_t bytes) {
    if (ram_.fetch_add(bytes) + bytes <= memory_ + memory_ / 16 + wire::kSlabBytes) return true;
    ram_ -= bytes;
    is_awaited_ = true;
    return false;
  }
  void correct(uint64_t from, uint64_t to) { ram_ += to - from; }
  uint64_t ram() const { return ram_; }
  // Whether there will be room soon where there is none now.
  bool is_moving_pages() const { return !is_stuck_ && !file_->has_failed(); }

  // What each region uses is exact now. The longer RAM is short, the warmer are the pages that leave.
  void begin_pass() {
    bool in_vain = is_awaited_.exchange(false) && age_ == 0 && freed_ == 0;
    idle_passes_ = in_vain ? idle_passes_ + 1 : 0;
    is_stuck_ = idle_passes_ > kMaxIdlePasses;
    file_->warn_if_nearly_full();
    bool sufficed = freed_ >= excess_ / 4;  // the last pass, with the age that it had
    uint64_t used = ram_, low = memory_ - memory_ / 16;
    excess_ = saturating_sub(used, low);
    room_ = saturating_sub(memory_, used);
    freed_ = 0;
    bool full = used > memory_;
    age_ = excess_ == 0 ? packed::kStaleAge : std::max(age_ / 2, full && !sufficed ? 0U : 1U);
    packs_all_ = full && age_ <= 1;
  }
  // The next pass may not wait.
  bool is_in_a_hurry() const { return excess_ > memory_ / 16 && (freed_ > 0 || is_awaited_) && is_moving_pages(); }
  bool wants_pages() const { return freed_ < excess_ && !file_->has_failed(); }
  // Pages leave that were not used for so long, in units of PackedWord::kEpochsOfAge.
  uint32_t age() const { return age_; }
  // Pages that are not known to be incompressible are compressed before they have to leave, however warm they are.
  bool packs_all() const { return packs_all_ && wants_pages(); }
  void note_freed(uint64_t bytes) { freed_ += bytes; }
  bool take_room(uint64_t bytes) {
    if (room_ < bytes) return false;
    room_ -= bytes;
    return true;
  }

 private:
  const std::unique_ptr<OverflowFile> file_;
  const uint64_t memory_;
  std::atomic<uint64_t> ram_{0};
  std::atomic<bool> is_awaited_{false}, is_stuck_{false};
  // Of this pass, in bytes of RAM: to be freed, that were, and for pages that come back.
  uint64_t excess_ = 0, freed_ = 0, room_ = 0;
  uint32_t age_ = packed::kStaleAge;
  bool packs_all_ = false;
  // In a row, passes that freed nothing while a write waited and any page could leave. The first may have begun before
  // that, and the second finds out which slots are free.
  static constexpr unsigned kMaxIdlePasses = 2;
  unsigned idle_passes_ = 0;
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
