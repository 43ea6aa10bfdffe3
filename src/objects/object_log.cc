#include "objects/object_log.h"

#include <algorithm>

namespace farside::objects {

PageIndex SegmentPool::take(bool for_new) {
  LockGuard guard(mutex_);
  if (for_new && in_use() >= max_for_new_) return SegmentStack::kNone;
  if (near_.empty() && !refill()) return SegmentStack::kNone;
  PageIndex page = near_.back();
  near_.pop_back();
  if (guarded_ == 0) take_over(page);
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return page;
}

void SegmentPool::take_over(PageIndex page) {
  std::byte* address = table_.address_of(page);
  if (pager_.table().word(reinterpret_cast<uint64_t>(address)).is(pager::PageState::kFar)) {
    pager_.addresses().discard(address, kPageSize);  // so that the old content is not fetched
    make_near(page, 1);
  }
  pager_.paging().mark_objects(address, kPageSize);
}

// A near page of a guarded structure is discarded: it is dead because frames are wanted, as a rule.
void SegmentPool::give(PageIndex page) {
  std::byte* address = table_.address_of(page);
  bool is_near = pager_.table().word(reinterpret_cast<uint64_t>(address)).is(pager::PageState::kNear);
  bool keeps = is_near && !is_guarded();
  if (!keeps) pager_.addresses().discard(address, kPageSize);  // the server need not keep it
  table_[page].leave.store(static_cast<uint8_t>(Leave::kNo), std::memory_order_release);
  LockGuard guard(mutex_);
  (keeps ? near_ : fresh_).push_back(page);
  uint64_t before = in_use_.fetch_sub(1, std::memory_order_relaxed);
  FARSIDE_CHECK(before > 0);
}

size_t SegmentPool::list(size_t from, std::span<PageIndex> out) {
  constexpr size_t kPages = kChunkBytes / kPageSize;
  LockGuard guard(mutex_);
  size_t count = std::min(out.size(), chunks_.size() * kPages - std::min(from, chunks_.size() * kPages));
  for (size_t i = 0; i < count; i++) {
    out[i] = static_cast<PageIndex>(chunks_[(from + i) / kPages] + (from + i) % kPages);
  }
  return count;
}

size_t SegmentPool::list_runs(std::span<std::span<std::byte>> out) {
  LockGuard guard(mutex_);
  std::copy_n(runs_.begin(), std::min(out.size(), runs_.size()), out.begin());
  return runs_.size();
}

// An evictor that claims the page after it is marked asks the handler. What one evicts that had claimed it before is
// garbage; but it must be through before a log fills the page.
void SegmentPool::guard_page(PageIndex page) {
  std::byte* address = table_.address_of(page);
  table_[page].structure.store(static_cast<uint8_t>(guarded_), std::memory_order_relaxed);
  for (;;) {
    pager_.paging().mark_objects(address, kPageSize);
    pager::PageState state = pager_.table().word(reinterpret_cast<uint64_t>(address)).state();
    if (state != pager::PageState::kEvicting && state != pager::PageState::kFar) return;
    pager_.addresses().discard(address, kPageSize);
  }
}

// Makes several neighbouring pages near by one hint, so that they do not fault one by one.
bool SegmentPool::refill() {
  if (fresh_.empty() && !commit_chunk()) return false;
  PageIndex first = fresh_.back();
  size_t count = 0;
  for (; count < kReadyPages && !fresh_.empty() && fresh_.back() == first + count; count++) fresh_.pop_back();
  for (size_t i = 0; guarded_ != 0 && i < count; i++) guard_page(static_cast<PageIndex>(first + i));
  make_near(first, count);
  for (size_t i = count; i > 0; i--) near_.push_back(static_cast<PageIndex>(first + i - 1));
  return true;
}

// Best effort: where no frame is free, the first write waits for one.
void SegmentPool::make_near(PageIndex first, size_t count) {
  auto address = reinterpret_cast<uint64_t>(table_.address_of(first));
  pager_.paging().hint({.address = address, .bytes = count * kPageSize, .write = true});
}

bool SegmentPool::commit_chunk() {
  if (arena_left_ < kChunkBytes) {
    if (!may_grow_) return false;
    std::byte* arena = pager_.addresses().reserve(kArenaBytes, kArenaBytes);
    if (!arena) return false;
    arena_ = arena;
    arena_left_ = kArenaBytes;
  }
  if (!pager_.addresses().commit(arena_, kChunkBytes).ok()) return false;
  PageIndex first = table_.index_of(reinterpret_cast<uint64_t>(arena_));
  chunks_.push_back(first);
  if (!runs_.empty() && runs_.back().data() + runs_.back().size() == arena_)
    runs_.back() = {runs_.back().data(), runs_.back().size() + kChunkBytes};
  else runs_.emplace_back(arena_, kChunkBytes);
  for (size_t i = kChunkBytes / kPageSize; i > 0; i--) fresh_.push_back(static_cast<PageIndex>(first + i - 1));
  arena_ += kChunkBytes;
  arena_left_ -= kChunkBytes;
  return true;
}

void ObjectLog::begin(SegmentTable& table, PageIndex page) {
  Segment& s = table[page];
  FARSIDE_CHECK(!has_segment() && s.word().state() == SegmentState::kNone && s.owner_overrides.load() == 0);
  s.read_bits.store(0, std::memory_order_relaxed);
  s.write_bits.store(0, std::memory_order_relaxed);
  table.taken_bits(page).store(0, std::memory_order_relaxed);
  for (auto& word : s.live) word.store(0, std::memory_order_relaxed);
  s.live_units.store(1, std::memory_order_relaxed);  // of the log
  s.used_units.store(0, std::memory_order_relaxed);
  s.slots.store(0, std::memory_order_relaxed);
  s.origin.store(static_cast<uint8_t>(origin_), std::memory_order_relaxed);
  s.filling.store(1, std::memory_order_relaxed);
  s.structure.store(static_cast<uint8_t>(structure_), std::memory_order_relaxed);
  s.state.store(static_cast<uint32_t>(SegmentState::kOpen), std::memory_order_seq_cst);
  page_ = page;
  offset_ = 0;
}

bool ObjectLog::place(SegmentTable& table, size_t bytes, size_t alignment, PtrWord* word) {
  if (!has_segment()) return false;
  Segment& s = table[page_];
  FARSIDE_DCHECK(bytes > 0 && bytes <= kLargestObject && s.filling.load(std::memory_order_relaxed) == 1);
  size_t begin = align_up(offset_, PtrWord::kUnit);
  size_t room = align_up(bytes, PtrWord::kUnit);
  bool crosses = begin / kCacheLine != (begin + room - 1) / kCacheLine;
  if (crosses || alignment > PtrWord::kUnit) begin = align_up(begin, kCacheLine);
  unsigned slot = s.slots.load(std::memory_order_relaxed);
  if (begin + room + (slot + 1) * kHeaderBytes > kPageSize) return false;
  *word = PtrWord::make(reinterpret_cast<uint64_t>(table.address_of(page_)) + begin, bytes, slot);
  auto units = static_cast<uint16_t>(room / PtrWord::kUnit);
  s.slots.store(static_cast<uint8_t>(slot + 1), std::memory_order_relaxed);
  s.used_units.store(static_cast<uint16_t>(s.used_units.load(std::memory_order_relaxed) + units),
                     std::memory_order_relaxed);
  s.live_units.fetch_add(units, std::memory_order_acq_rel);
  offset_ = begin + room;
  FARSIDE_DCHECK(slot < kMaxSlots && offset_ <= kPageSize);
  return true;
}

}  // namespace farside::objects
