// The part of Evictor that chooses the pages of a batch: phase 1.
#include <algorithm>

#include "pager/evict/evictor.h"

namespace farside::pager {

// Phase 1. Pages that are pinned or being upgraded are inserted into the policy again.
size_t Evictor::select(Batch& batch) {
  PageIndex candidates[kBatchPages];
  bool for_huge = index_ == 0 && pool_.wants_pages();
  size_t wanted = for_huge ? kBatchPages : std::clamp<size_t>(frames_.missing(), kMinBatchPages, kBatchPages);
  wanted = std::min(wanted, batch.room);
  size_t found = take_near(freed_, {candidates, wanted}, [](PageWord w) { return w.has(PageWord::kFreed); });
  size_t preferred = take_near(preferred_, {candidates + found, wanted - found}, [](PageWord) { return true; });
  break_up_huge({candidates + found, preferred});
  found += preferred;
  wanted -= std::min(wanted - found, leaving());
  if (found < wanted) found += policy_.select(index_, {candidates + found, wanted - found});
  return take(batch, {candidates, found});
}

// The candidates that can be claimed are the pages of the batch. Returns how many.
size_t Evictor::take(Batch& batch, std::span<const PageIndex> candidates) {
  FARSIDE_CHECK(batch.unwritten == 0 && candidates.size() <= kBatchPages);
  batch.count = batch.dirty_count = 0;
  for (PageIndex page : candidates) {
    PageWord word = table_[page].load();
    if (word.is(PageState::kNear) && word.has(PageWord::kHuge)) continue;  // it leaves with its huge page
    if (claim(page, &word)) {
      if (may_leave(page)) batch.pages[batch.count++] = page;
      else put_back(page);
    } else if (word.is(PageState::kNear)) {
      policy_.insert(index_, page);
    }
  }
  std::sort(batch.pages, batch.pages + batch.count);
  auto add_dirty = [&](bool twins) {
    for (size_t i = 0; i < batch.count; i++) {
      PageIndex page = batch.pages[i];
      if (table_[page].load().has(PageWord::kDirty) && twins_.has(page) == twins)
        batch.dirty[batch.dirty_count++] = page;
    }
  };
  add_dirty(false);
  batch.whole_count = batch.dirty_count;
  if (twins_.enabled()) add_dirty(true);
  FARSIDE_CHECK(batch.whole_count <= batch.dirty_count && batch.dirty_count <= batch.count);
  notify_observer(batch);
  return batch.count;
}

// A claimed page stays near. Without kHuge: its huge page may have been taken out of its queue meanwhile, without this
// page.
void Evictor::put_back(PageIndex page) {
  PageWord old =
      table_[page].update([](PageWord w) { return w.with_state(PageState::kNear).without(PageWord::kHuge); });
  FARSIDE_CHECK(old.is(PageState::kEvicting));
  policy_.insert(index_, page);
}

// Of a claimed page: it is not discarded meanwhile, so what the observer says holds until it has left.
bool Evictor::may_leave(PageIndex page) {
  if (!table_[page].load().has(PageWord::kObjects)) return true;
  PageObserver* observer = observer_.load(std::memory_order_acquire);
  return !observer || observer->may_evict(page);
}

size_t Evictor::leaving() const {
  PageObserver* observer = observer_.load(std::memory_order_acquire);
  return observer ? observer->leaving() : 0;
}

void Evictor::notify_observer(const Batch& batch) {
  PageObserver* observer = observer_.load(std::memory_order_acquire);
  if (!observer) return;
  PageIndex objects[kBatchPages];
  size_t count = 0;
  for (size_t i = 0; i < batch.count; i++) {
    if (table_[batch.pages[i]].load().has(PageWord::kObjects)) objects[count++] = batch.pages[i];
  }
  if (count > 0) observer->on_evict({objects, count});
}

template <typename Wanted>
size_t Evictor::take_near(PageFifo& from, std::span<PageIndex> out, Wanted is_wanted) {
  size_t found = 0;
  for (size_t taken = 1; found == 0 && taken > 0;) {
    taken = from.take(out);
    for (size_t i = 0; i < taken; i++) {
      PageWord word = table_[out[i]].load();
      if (word.is(PageState::kNear) && is_wanted(word)) out[found++] = out[i];
    }
  }
  return found;
}

void Evictor::break_up_huge(std::span<const PageIndex> pages) {
  for (PageIndex page : pages) {
    if (PageWord word = table_[page].load(); word.is(PageState::kNear) && word.has(PageWord::kHuge))
      huge_.break_up(huge_of(page));
  }
}

// The content of a freed page is not written.
bool Evictor::claim(PageIndex page, PageWord* word) {
  *word = table_[page].load();
  while (word->is(PageState::kNear) && word->pins() == 0 && !word->has(PageWord::kUpgrading)) {
    if (!table_[page].try_change(*word, word->with_state(PageState::kEvicting))) continue;
    if (word->has(PageWord::kFreed)) table_[page].clear(PageWord::kDirty);
    return true;
  }
  return false;
}

}  // namespace farside::pager
