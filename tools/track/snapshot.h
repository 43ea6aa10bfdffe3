// Copies of the tracked process's pages, as they were last read. Pages of zeros need no space. Beyond the limit pages
// are recorded as seen, without their content. Not thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/bits.h"
#include "process/areas.h"

namespace farside::track {

using process::Area;

class Snapshot {
 public:
  explicit Snapshot(uint64_t max_bytes);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  enum class Seen { kNever, kWithoutContent, kWithContent };
  struct Page {
    Seen seen = Seen::kNever;
    const std::byte* content = nullptr;
  };
  Page find(uint64_t address);

  void keep(uint64_t address, const std::byte* content);
  void forget(uint64_t begin, uint64_t end);
  void forget_all_but(const std::vector<Area>& areas);  // `areas` are sorted by address

  uint64_t bytes() const { return (slots_ - free_.size()) * kPageSize; }

 private:
  static constexpr uint64_t kPagesPerBlock = 512;
  // A page's word: one of these values, or kFirstSlot + the number of the slot with its content.
  enum : uint32_t { kNever, kZeros, kNoRoom, kFirstSlot };
  using Block = std::array<uint32_t, kPagesPerBlock>;

  uint32_t* word_of(uint64_t address, bool make);
  std::byte* slot(uint32_t word) const;
  uint32_t take_slot();  // kNoRoom if the limit is reached
  void release(uint32_t word);

  uint64_t max_slots_;
  uint64_t slots_ = 0;             // slots allocated so far
  std::vector<uint32_t> free_;     // words of released slots
  std::vector<std::byte*> slabs_;  // each has kSlabPages slots
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;
  uint64_t cached_number_ = UINT64_MAX;  // the last block looked up
  Block* cached_ = nullptr;
};

}  // namespace farside::track
