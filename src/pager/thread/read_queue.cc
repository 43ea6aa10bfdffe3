#include "pager/thread/read_queue.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace farside::pager {

transport::Channel& ReadQueue::channel(remote::RemoteStore* store) {
  if (channel_) return *channel_;
  Status status;
  channel_ = store->open_channel(&status);
  if (!channel_) die("{}", status.text());
  return *channel_;
}

Fetch* ReadQueue::find(PageIndex page) {
  FARSIDE_DCHECK(is_locked());
  for (Fetch& f : fetches()) {
    if (!f.is_free() && f.waits_for(page)) return &f;
  }
  return nullptr;
}

Fetch* ReadQueue::free_fetch() {
  FARSIDE_DCHECK(is_locked());
  Fetch* free = nullptr;
  unsigned in_flight = huge_requests_;
  for (Fetch& f : fetches()) {
    if (!f.is_free()) in_flight++;
    else if (!free) free = &f;
  }
  if (in_flight >= kMaxReads) return nullptr;
  return free ? free : &fetches_[used_++];
}

HugeFetch* ReadQueue::free_huge(unsigned requests) {
  FARSIDE_DCHECK(is_locked());
  auto in_flight =
      static_cast<unsigned>(std::count_if(fetches_, fetches_ + used_, [](const Fetch& f) { return !f.is_free(); }));
  if (requests > 0 && (huge_requests_ > 0 || in_flight + requests > kMaxReads)) return nullptr;
  auto* free = std::find_if(huge_, huge_ + kMaxHuge, [](const HugeFetch& f) { return f.is_free(); });
  return free == huge_ + kMaxHuge ? nullptr : free;
}

HugeFetch* ReadQueue::find_huge(HugeIndex huge) {
  FARSIDE_DCHECK(is_locked());
  for (HugeFetch& f : huge_) {
    if (!f.is_free() && f.huge == huge) return &f;
  }
  return nullptr;
}

HugeFetch* ReadQueue::unfilled_huge() {
  FARSIDE_DCHECK(is_locked());
  HugeFetch* oldest = nullptr;
  for (HugeFetch& f : huge_) {
    if (f.is_free() || f.is_filled()) continue;
    if (!oldest || f.sequence < oldest->sequence) oldest = &f;
  }
  return oldest;
}

void ReadQueue::started(HugeFetch& fetch, Slot slot, unsigned requests) {
  FARSIDE_DCHECK(is_locked() && fetch.is_free() && slot >= 0);
  fetch.slot = slot;
  fetch.filled = 0;
  fetch.sequence = ++sequence_;
  huge_requests_ += requests;
  reading_.fetch_add(1, std::memory_order_acq_rel);
}

void ReadQueue::ended(HugeFetch& fetch) {
  FARSIDE_DCHECK(is_locked() && fetch.is_filled());
  fetch.slot = -1;
  unsigned before = reading_.fetch_sub(1, std::memory_order_acq_rel);
  FARSIDE_CHECK(before > 0);
}

Fetch* ReadQueue::oldest() {
  FARSIDE_DCHECK(is_locked());
  Fetch* oldest = nullptr;
  for (Fetch& f : fetches()) {
    if (!f.is_free() && (!oldest || f.sequence < oldest->sequence)) oldest = &f;
  }
  return oldest;
}

Fetch* ReadQueue::ahead() {
  FARSIDE_DCHECK(is_locked());
  Fetch* oldest = nullptr;
  for (Fetch& f : fetches()) {
    if (f.is_free() || !f.ahead || f.mapped == f.count) continue;
    if (!oldest || f.sequence < oldest->sequence) oldest = &f;
  }
  return oldest;
}

void ReadQueue::close(remote::RemoteStore* store) {
  ReadQueueLock lock(*this);  // excludes evictors that look for a window to map
  wants_mapping.store(false, std::memory_order_relaxed);
  // Unlinked before they are freed: the child of a fork in between must not find them here.
  if (transport::Channel* channel = std::exchange(channel_, nullptr)) store->close_channel(channel);
  for (Fetch& f : fetches()) {
    f.progress = Fetch::Progress::kFree;
    unsigned room = std::exchange(f.room, 0);
    if (std::byte* buffer = std::exchange(f.buffer, nullptr)) near_free(buffer, room * kPageSize);
  }
  for (HugeFetch& f : huge_) f.slot = -1;
  huge_requests_ = 0;
  used_ = 0;
  reading_.store(0);
}

}  // namespace farside::pager
