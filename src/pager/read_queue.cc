#include "pager/read_queue.h"

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
  for (Fetch& f : fetches()) {
    if (f.is_free()) return &f;
  }
  return used_ < kMaxReads ? &fetches_[used_++] : nullptr;
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
  used_ = 0;
  reading_.store(0);
}

}  // namespace farside::pager
