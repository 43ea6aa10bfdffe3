#include "pager/paging.h"

#include <algorithm>

#include "fiber/wait.h"

namespace farside::pager {

size_t Paging::pin(const void* address, size_t bytes, bool write) {
  if (bytes == 0) return 0;
  uint64_t begin = align_down(number(address), kPageSize), pinned = begin;
  uint64_t end = number(address) + table_.contained_bytes(number(address), bytes);
  table_.for_each_part(pointer(begin), align_up(end, kPageSize) - begin,
                       [&](std::byte* at, PageIndex first, uint64_t count) {
                         uint64_t part = ranges_.pin(first, count, write);
                         pinned = number(at) + part * kPageSize;
                         return part == count;
                       });
  return pinned == begin ? 0 : std::min(pinned, end) - number(address);
}

void Paging::unpin(const void* address, size_t bytes) {
  if (bytes == 0) return;
  uint64_t begin = align_down(number(address), kPageSize), end = align_up(number(address) + bytes, kPageSize);
  table_.for_each_part(pointer(begin), end - begin,
                       [&](std::byte*, PageIndex first, uint64_t count) { ranges_.unpin(first, count); });
}

unsigned Paging::hint(const Hint& hint) {
  if (hints_.is_satisfied(hint)) return 0;
  bool may_suspend = fibers::in_fiber();
  SignalsBlocked blocked;
  return hints_.hint(hint, may_suspend);
}

void Paging::read_subpages(std::span<SubpageRead> reads) {
  bool may_suspend = fibers::in_fiber();
  SignalsBlocked blocked;
  fetches_.read_subpages(reads, may_suspend);
}

void Paging::mark_objects(std::byte* address, size_t bytes) {
  PageIndex first = table_.index_of(number(address));
  for (uint64_t i = 0; i < bytes / kPageSize; i++) {
    table_[static_cast<PageIndex>(first + i)].update(
        [](PageWord w) { return w.with(PageWord::kObjects).without(PageWord::kObjectPath); });
  }
}

void Paging::detach_thread() {
  SignalsBlocked blocked;
  if (ThreadSlot* t = threads_.attached()) {
    InGate inside(gate_, *t);
    fetches_.drain(*t, *t);
  }
  threads_.detach();
}

void Paging::advise(std::byte* address, size_t bytes, int advice) {
  table_.for_each_part(address, bytes,
                       [&](std::byte*, PageIndex first, uint64_t count) { huge_.advise(first, count, advice); });
}

void Paging::fetch_range(std::byte* address, size_t bytes, bool write, bool wait) {
  SignalsBlocked blocked;
  table_.for_each_part(address, bytes, [&](std::byte*, PageIndex first, uint64_t count) {
    hints_.fetch_range(first, count, write, wait);
  });
}

void Paging::evict_first(const std::byte* address, size_t bytes) {
  SignalsBlocked blocked;
  table_.for_each_part(address, bytes,
                       [&](const std::byte*, PageIndex first, uint64_t count) { evictors_.evict_first(first, count); });
}

}  // namespace farside::pager
