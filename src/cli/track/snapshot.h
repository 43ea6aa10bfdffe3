// What the tracked process's pages held when they were last seen. Pages of zeros take no room; beyond the limit pages
// are remembered as seen, without what they held.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/bits.h"
#include "cli/track/areas.h"

namespace farside::cli::track {

class Snapshot {
 public:
  explicit Snapshot(uint64_t most_bytes);
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
  void forget_all_but(const std::vector<Area>& areas);  // sorted by address

  uint64_t bytes() const { return (slots_ - free_.size()) * kPageSize; }

 private:
  static constexpr uint64_t kPagesPerBlock = 512;
  // A page's word: one of these, or kFirstSlot + the number of the slot that holds its content.
  enum : uint32_t { kNever, kZeros, kNoRoom, kFirstSlot };
  using Block = std::array<uint32_t, kPagesPerBlock>;

  uint32_t* word_of(uint64_t address, bool make);
  std::byte* slot(uint32_t word) const;
  uint32_t take_slot();  // kNoRoom if there is none
  void release(uint32_t word);

  uint64_t most_slots_;
  uint64_t slots_ = 0;             // ever taken
  std::vector<uint32_t> free_;     // words of those given back
  std::vector<std::byte*> slabs_;  // each of kSlabPages slots
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;
  uint64_t cached_number_ = UINT64_MAX;  // the block looked up last
  Block* cached_ = nullptr;
};

}  // namespace farside::cli::track
