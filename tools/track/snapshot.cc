#include "tools/track/snapshot.h"

#include <algorithm>
#include <cstring>

#include "base/os.h"

namespace farside::track {
namespace {

constexpr uint64_t kSlabPages = 512;
constexpr uint64_t kMaxSlots = UINT32_MAX - 16;
alignas(64) const std::byte kZeroPage[kPageSize] = {};

uint64_t page_number(uint64_t address) { return address / kPageSize; }

}  // namespace

Snapshot::Snapshot(uint64_t max_bytes) : max_slots_(std::min(max_bytes / kPageSize, kMaxSlots)) {}

Snapshot::~Snapshot() {
  for (std::byte* slab : slabs_) os::unmap(slab, kSlabPages * kPageSize);
}

uint32_t* Snapshot::word_of(uint64_t address, bool make) {
  uint64_t number = page_number(address) / kPagesPerBlock;
  if (number != cached_number_) {
    auto found = blocks_.find(number);
    if (found == blocks_.end()) {
      if (!make) return nullptr;
      found = blocks_.emplace(number, std::make_unique<Block>()).first;
    }
    cached_number_ = number;
    cached_ = found->second.get();
  }
  return &(*cached_)[page_number(address) % kPagesPerBlock];
}

std::byte* Snapshot::slot(uint32_t word) const {
  uint64_t number = word - kFirstSlot;
  return slabs_[number / kSlabPages] + number % kSlabPages * kPageSize;
}

uint32_t Snapshot::take_slot() {
  if (!free_.empty()) {
    uint32_t word = free_.back();
    free_.pop_back();
    return word;
  }
  if (slots_ >= max_slots_) return kNoRoom;
  if (slots_ == slabs_.size() * kSlabPages) {
    void* slab = os::map_near(kSlabPages * kPageSize);
    if (!slab) return kNoRoom;
    slabs_.push_back(static_cast<std::byte*>(slab));
  }
  return kFirstSlot + static_cast<uint32_t>(slots_++);
}

void Snapshot::release(uint32_t word) {
  if (word >= kFirstSlot) free_.push_back(word);
}

Snapshot::Page Snapshot::find(uint64_t address) {
  const uint32_t* word = word_of(address, false);
  if (!word || *word == kNever) return {};
  if (*word == kNoRoom) return {Seen::kWithoutContent, nullptr};
  return {Seen::kWithContent, *word == kZeros ? kZeroPage : slot(*word)};
}

void Snapshot::keep(uint64_t address, const std::byte* content) {
  uint32_t* word = word_of(address, true);
  if (memcmp(content, kZeroPage, kPageSize) == 0) {
    release(*word);
    *word = kZeros;
    return;
  }
  if (*word < kFirstSlot) *word = take_slot();
  if (*word >= kFirstSlot) memcpy(slot(*word), content, kPageSize);
}

void Snapshot::forget(uint64_t begin, uint64_t end) {
  constexpr uint64_t kBlockBytes = kPagesPerBlock * kPageSize;
  cached_number_ = UINT64_MAX;
  auto block = blocks_.lower_bound(begin / kBlockBytes);
  while (block != blocks_.end() && block->first * kBlockBytes < end) {
    uint64_t block_begin = block->first * kBlockBytes;
    uint64_t first = begin > block_begin ? page_number(begin - block_begin) : 0;
    uint64_t last = std::min(page_number(end - block_begin), kPagesPerBlock);
    for (uint64_t i = first; i < last; i++) {
      release((*block->second)[i]);
      (*block->second)[i] = kNever;
    }
    block = first == 0 && last == kPagesPerBlock ? blocks_.erase(block) : std::next(block);
  }
}

void Snapshot::forget_all_but(const std::vector<Area>& areas) {
  uint64_t gap = 0;
  for (const Area& area : areas) {
    if (gap < area.begin) forget(gap, area.begin);
    gap = area.end;
  }
  forget(gap, align_down(UINT64_MAX, kPageSize));
}

}  // namespace farside::track
