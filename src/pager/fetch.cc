#include "pager/fetch.h"

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

int SubpageReadQueue::send(transport::Channel& channel) {
  transport::Segment segments[kMaxSegments];
  size_t count = 0;
  SubpageReadGroup* last = nullptr;
  for (SubpageReadGroup* r = first_; r && count + r->segments.size() <= kMaxSegments; r = r->next) {
    for (const transport::Segment& s : r->segments) segments[count++] = s;
    last = r;
  }
  Request& request = requests_[in_flight_];
  if (int error = channel.submit_read({segments, count}, &request.token)) return error;
  request.first = first_;
  request.last = last;
  first_ = last->next;
  last->next = nullptr;
  queued_ -= count;
  in_flight_++;
  return 0;
}

int SubpageReadQueue::finish_oldest(transport::Channel& channel, bool wait, uint64_t timeout_ns, size_t* reads_done) {
  *reads_done = 0;
  if (in_flight_ == 0) return 0;
  int r = wait ? channel.wait(requests_[0].token, timeout_ns) : channel.poll(requests_[0].token);
  if (r < 0 || (r == 0 && !wait)) return r;
  for (SubpageReadGroup *read = requests_[0].first, *next; read; read = next) {
    next = read->next;  // its reader may go on at once, so nobody touches it afterwards
    read->done.store(true, std::memory_order_release);
    ++*reads_done;
  }
  in_flight_--;
  for (size_t i = 0; i < in_flight_; i++) requests_[i] = requests_[i + 1];
  return 1;
}

Fetch* ReadQueue::find(PageIndex page) {
  for (Fetch& f : fetches()) {
    if (!f.is_free() && f.waits_for(page)) return &f;
  }
  return nullptr;
}

Fetch* ReadQueue::free_fetch() {
  for (Fetch& f : fetches()) {
    if (f.is_free()) return &f;
  }
  return used_ < kMaxReads ? &fetches_[used_++] : nullptr;
}

Fetch* ReadQueue::oldest() {
  Fetch* oldest = nullptr;
  for (Fetch& f : fetches()) {
    if (!f.is_free() && (!oldest || f.sequence < oldest->sequence)) oldest = &f;
  }
  return oldest;
}

Fetch* ReadQueue::ahead() {
  Fetch* oldest = nullptr;
  for (Fetch& f : fetches()) {
    if (f.is_free() || !f.ahead || f.mapped == f.count) continue;
    if (!oldest || f.sequence < oldest->sequence) oldest = &f;
  }
  return oldest;
}

void ReadQueue::close(remote::RemoteStore* store) {
  ReadQueueLock lock(*this);  // against who maps ahead, and looks whether there is something
  wants_mapping.store(false, std::memory_order_relaxed);
  // Out of the line before they are freed: the child of a fork in between must not find them here.
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
