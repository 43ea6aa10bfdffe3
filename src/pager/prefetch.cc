#include "pager/prefetch.h"

namespace farside::pager {

// The stream that this fault belongs to: one that expected it, else an unconfirmed one nearby, else the oldest, reset.
Prefetcher::Stream* Prefetcher::find(int64_t page) {
  Stream* nearby = nullptr;
  Stream* oldest = &streams_[0];
  for (Stream& s : streams_) {
    if (continues(s, page)) return &s;
    int64_t distance = page - s.last;
    if (s.window == 0 && s.last >= 0 && distance != 0 && distance <= kMaxStride && distance >= -kMaxStride) nearby = &s;
    if (s.age < oldest->age) oldest = &s;
  }
  if (nearby) return nearby;
  *oldest = Stream{};
  return oldest;
}

Window Prefetcher::extend(Stream& s, int64_t page) {
  used_window_ = s.ahead;
  s.ahead = s.in_flight;
  s.in_flight = 0;
  s.window = s.window == 0 ? kFirstWindow : (s.window * 2 > kMaxWindow ? kMaxWindow : s.window * 2);
  bool beyond = s.stride > 0 ? page > s.last : page < s.last;
  if (beyond) s.last = page;  // else a window up to s.last is in flight
  s.next = s.last + s.stride;
  return {s.last, s.stride, s.window};
}

Window Prefetcher::on_fault(PageIndex index) {
  auto page = static_cast<int64_t>(index);
  used_window_ = 0;
  current_ = find(page);
  Stream& s = *current_;
  s.age = ++clock_;
  if (s.window > 0) return extend(s, page);
  int64_t distance = page - s.last;
  if (s.last >= 0 && distance == s.stride) return extend(s, page);  // the third fault at equal distance confirms
  s.stride = s.last >= 0 ? distance : 0;
  s.last = page;
  return {};
}

void Prefetcher::record_window(unsigned reached, unsigned fetched) {
  reach(reached);
  current_->ahead += fetched;
  current_->next = current_->last + current_->stride;
}

void Prefetcher::record_next_window(unsigned reached, unsigned fetched, PageIndex marker) {
  reach(reached);
  current_->in_flight = fetched;
  current_->next = fetched > 0 ? static_cast<int64_t>(marker) : current_->last + current_->stride;
}

void Prefetcher::reach(unsigned pages) {
  Stream& s = *current_;
  s.last += s.stride * static_cast<int64_t>(pages);
  // Do not grow beyond what could be claimed.
  if (pages < s.window) s.window = pages < kFirstWindow ? kFirstWindow : pages;
}

}  // namespace farside::pager
