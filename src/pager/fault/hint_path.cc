#include "pager/fault/hint_path.h"

#include <algorithm>

namespace farside::pager {

// Of the pages ahead, the nearer half must be present or in flight; the others are fetched later, many at a time.
bool HintPath::is_satisfied(const Hint& hint) {
  constexpr uint64_t kMaxLooks = 64;  // pages
  if (hint.bytes == 0 || hint.bytes > kMaxLooks * kPageSize || hint.behind > 0) return false;
  uint64_t end = hint.address + hint.bytes - 1;
  if (!table_.contains(hint.address) || !table_.contains(end)) return false;
  uint64_t first = table_.index_of(hint.address), last = table_.index_of(end);
  if (last - first > kMaxLooks) return false;  // windows outside of the far space
  uint64_t ahead = std::min<uint64_t>(last + (hint.ahead + 1) / 2, table_.pages() - 1);
  for (uint64_t page = first; page <= ahead; page++) {
    PageWord word = table_[static_cast<PageIndex>(page)].load();
    if (page > last && word.is(PageState::kFetching)) continue;
    if (!word.is(PageState::kNear) || word.has(PageWord::kUpgrading) || word.priority() != hint.priority) return false;
    if (page <= last && hint.write && !word.writable()) return false;
  }
  for (uint64_t page = first; page <= last; page++) record_use(static_cast<PageIndex>(page));
  return true;
}

// A page becomes hot at its second use: the first use of a prefetched page clears `prefetched`, so that it is treated
// like a page that was fetched by its first use. Best effort: the page may be evicted meanwhile.
void HintPath::record_use(PageIndex page) {
  PageTable::Entry word = table_[page];
  PageWord now = word.load();
  if (now.has(PageWord::kPrefetched)) word.clear(PageWord::kPrefetched);
  else if (!now.has(PageWord::kHot)) word.set(PageWord::kHot);
}

unsigned HintPath::hint(const Hint& hint, bool may_suspend) {
  ThreadSlot& t = threads_.current();
  InGate inside(gate_, t);
  Caller caller{t, may_suspend};
  t.counters.add(Counter::kHints);
  bool known = hint.bytes > 0 && table_.contains(hint.address);
  PageIndex first = known ? table_.index_of(hint.address) : 0;
  if (!known || table_[first].load().is(PageState::kUnmapped)) {
    t.counters.add(Counter::kHintsWild);
    return 0;
  }
  uint64_t end = hint.address + hint.bytes - 1;
  PageIndex last = table_.contains(end) ? table_.index_of(end) : first;
  if (last < first) last = first;  // the hint's pages have no successive numbers
  if (last - first >= most_at_once()) last = first + static_cast<PageIndex>(most_at_once()) - 1;
  Claims claims;
  claims.far.write = claims.untouched.write = hint.write;
  claim_all(caller, claims, first, last, hint);
  flush(caller, claims);
  bool suspended = hint.wait && wait_for(caller, first, last);
  // No thread waits for the pages ahead: a read of them that was delayed for gathering is sent now.
  if (may_suspend && !suspended && claims.fetched > 0) fetches_.complete_arrived(t, t);
  return claims.fetched;
}

// A hint must not displace all other pages, whatever its size.
uint64_t HintPath::most_at_once() const { return std::min<uint64_t>(kMaxPages, frames_.limit() / 8); }

void HintPath::fetch_range(PageIndex first, uint64_t count, bool write, bool wait) {
  uint64_t end = first + std::min<uint64_t>(count, frames_.limit() / 2);
  for (uint64_t page = first; page < end;) {
    PageWord word = table_[static_cast<PageIndex>(page)].load();
    if (word.is(PageState::kUnmapped)) {
      page++;
      continue;
    }
    uint64_t next = std::min({end, align_down(page, kHugePages) + kHugePages, page + most_at_once()});
    Hint part;
    part.address = reinterpret_cast<uint64_t>(table_.address_of(static_cast<PageIndex>(page)));
    part.bytes = (next - page) * kPageSize;
    part.write = write;
    part.priority = word.priority();
    part.wait = wait;
    part.wait_for_frames = true;
    hint(part, false);
    page = next;
  }
}

void HintPath::claim_all(const Caller& caller, Claims& claims, PageIndex first, PageIndex last, const Hint& hint) {
  for (PageIndex page = first; page <= last; page++) {
    if (fetch_huge(caller, claims, page, last, hint)) page += kHugePages - 1;
    else claim_page(caller, claims, page, hint, true);
  }
  for (uint64_t i = 1; i <= hint.ahead && last + i < table_.pages(); i++) {
    if (!claim_page(caller, claims, static_cast<PageIndex>(last + i), hint, false)) break;
  }
  for (uint64_t i = 1; i <= hint.behind && i <= first; i++) {
    if (!claim_page(caller, claims, static_cast<PageIndex>(first - i), hint, false)) break;
  }
}

// The huge page that begins at the page, where all of it is announced. False: its pages are to be claimed.
bool HintPath::fetch_huge(const Caller& caller, Claims& claims, PageIndex page, PageIndex last, const Hint& hint) {
  bool whole = page % kHugePages == 0 && last - page >= kHugePages - 1 && hint.priority == 0;
  if (!whole || caller.may_suspend) return false;
  if (!huge_.fetch_announced(caller.thread, huge_of(page), hint.write, hint.wait_for_frames)) return false;
  caller.thread.counters.add(Counter::kHintsFetched, kHugePages);
  claims.fetched += kHugePages;
  return true;
}

// asked: the page holds bytes of the hint. False: no further page can be claimed in this direction.
bool HintPath::claim_page(const Caller& caller, Claims& claims, PageIndex page, const Hint& hint, bool asked) {
  ThreadSlot& t = caller.thread;
  PageWord word = table_[page].load();
  if (word.is_free() || word.has(PageWord::kSealed)) return false;
  if (word.priority() != hint.priority) set_priority(page, hint.priority);
  if (asked && word.is(PageState::kNear)) record_use(page);
  if (asked && hint.write && word.is(PageState::kNear) && !word.writable() && !word.has(PageWord::kUpgrading)) {
    PageWord now = table_[page].load();
    FaultOutcome outcome;
    if (now.is(PageState::kNear) && !now.has(PageWord::kUpgrading)) faults_.upgrade(t, page, now, &outcome);
    return true;
  }
  bool far = word.is(PageState::kFar);
  if (!far && !(hint.write && word.is(PageState::kUntouched))) return true;
  Claim& claim = far ? claims.far : claims.untouched;
  if (claim.is_full()) flush(caller, claims);
  if (frames_.low()) evictors_.wake();
  if (!fetches_.try_take_frame(t)) {
    if (!hint.wait_for_frames) return false;  // the access itself will wait for a frame
    flush(caller, claims);                    // no thread waits for a page whose read this thread has not begun
    fetches_.take_frame(t);
  }
  word = table_[page].load();
  bool same = word.is(far ? PageState::kFar : PageState::kUntouched) && !word.has(PageWord::kSealed);
  if (!same) t.spare_frames.put(1);
  else if (fetches_.claim(t, page, word)) claim.pages[claim.count++] = page;
  return true;
}

void HintPath::set_priority(PageIndex page, unsigned priority) {
  constexpr uint64_t kPriority = uint64_t{3} << PageWord::kPriorityShift;
  table_[page].update(
      [&](PageWord w) { return w.without(kPriority).with(uint64_t{priority} << PageWord::kPriorityShift); });
}

void HintPath::flush(const Caller& caller, Claims& claims) {
  if (claims.untouched.count > 0) fetches_.fill_with_zeros(caller.thread, claims.untouched);
  if (claims.far.count > 0) {
    caller.thread.counters.add(Counter::kHintsFetched, claims.far.count);
    claims.fetched += claims.far.count;
    fetches_.fetch(caller, claims.far);
  }
  claims.untouched.count = claims.far.count = 0;
}

// Waits for those pages of the hint's bytes that this thread has claimed. True: the fiber was suspended.
bool HintPath::wait_for(const Caller& caller, PageIndex first, PageIndex last) {
  bool suspended = false;
  for (PageIndex page = first; page <= last; page++) {
    PageWord word = table_[page].load();
    if (!word.is(PageState::kFetching) || word.owner() != caller.thread.index) continue;
    if (caller.may_suspend) faults_.suspend_fiber(caller.thread, page);
    else fetches_.finish_own(caller.thread, page);
    suspended = caller.may_suspend;
  }
  return suspended;
}

}  // namespace farside::pager
