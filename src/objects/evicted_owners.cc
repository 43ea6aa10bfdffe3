// The part of ObjectSpace that reports which objects of a data structure have been evicted.
#include <cerrno>

#include "objects/object_space.h"

namespace farside::objects {

ssize_t ObjectSpace::take_evicted(unsigned structure, std::span<uint64_t*> owners) {
  if (structure >= structures_.count()) return -EINVAL;
  Scope scope;
  Busy busy(*this);
  for (;;) {
    PageIndex pages[pager::SubpageRead::kMaxPerRequest];
    ReadBuffer headers;
    take_evicted_segments(structure, owners.size(), pages, &headers);
    if (headers.count == 0) return 0;
    read(headers);
    size_t count = 0;
    for (size_t i = 0; i < headers.count; i++) {
      count += owners_of(pages[i], reinterpret_cast<const uint64_t*>(headers.content(i)), owners.data() + count);
    }
    if (count > 0) return static_cast<ssize_t>(count);
  }
}

// Takes segments that are far at this moment, with at most `room` objects together, and collects where their headers
// are.
void ObjectSpace::take_evicted_segments(unsigned structure, size_t room, PageIndex* pages, ReadBuffer* headers) {
  SignalsBlocked blocked;
  pager::PageFifo& fifo = structures_[structure].evicted;
  PageIndex page;
  while (headers->count < pager::SubpageRead::kMaxPerRequest && fifo.take({&page, 1}) > 0) {
    const Segment& s = table_[page];
    SegmentState state = s.word().state();
    if (state == SegmentState::kNone || state == SegmentState::kDead || s.structure != structure) continue;
    if (!pager_.table().word(reinterpret_cast<uint64_t>(table_.address_of(page))).is(pager::PageState::kFar)) continue;
    if (s.slots > room) return fifo.push(page);
    room -= s.slots;
    pages[headers->count] = page;
    add_headers(*headers, page);
  }
}

// The owners of the live objects of a segment. Returns their number.
size_t ObjectSpace::owners_of(PageIndex page, const uint64_t* headers, uint64_t** owners) {
  Segment& segment = table_[page];
  unsigned slots = segment.slots.load(std::memory_order_relaxed);
  size_t count = 0;
  for (unsigned slot = 0; slot < slots; slot++) {
    if (!segment.is_live(slot)) continue;
    uint64_t* owner = owner_overrides_.find(page, slot, segment);
    owners[count++] = owner ? owner : Header::owner(__atomic_load_n(headers + (slots - 1 - slot), __ATOMIC_RELAXED));
  }
  return count;
}

}  // namespace farside::objects
