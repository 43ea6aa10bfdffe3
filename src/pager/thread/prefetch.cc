#include "pager/thread/prefetch.h"

#include <algorithm>

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
  judge(0, oldest->ahead + oldest->in_flight);
  *oldest = Stream{};
  return oldest;
}

Window Prefetcher::extend(Stream& s, int64_t page) {
  used_window_ = s.ahead;
  int64_t steps = (page - s.fault) / s.stride - 1;
  if (used_window_ > 0 && steps > 0)
    passed_ = {s.fault, s.stride, static_cast<unsigned>(std::min<int64_t>(steps, 2 * kMaxWindow))};
  s.fault = page;
  s.ahead = s.in_flight;
  s.in_flight = 0;
  judge(used_window_, 0);
  bool proven = used_window_ > 0;
  s.window = std::clamp(s.window * 2, kFirstWindow, proven ? kMaxWindow : std::max(largest_, kFirstWindow));
  bool beyond = s.stride > 0 ? page > s.last : page < s.last;
  if (beyond) s.last = page;  // else a window up to s.last is in flight
  s.next = s.last + s.stride;
  return !proven && pauses() ? Window() : Window{s.last, s.stride, s.window};
}

bool Prefetcher::pauses() { return largest_ < kFirstWindow && ++pauses_ % kProbe != 0; }

// Smaller windows if less than a half was used, larger ones again above three quarters.
void Prefetcher::judge(unsigned used, unsigned unused) {
  used_ += used;
  unused_ += unused;
  if (used_ + unused_ < kCheckPages) return;
  if (used_ < unused_) largest_ = std::max(largest_ / 2, kFirstWindow / 2);
  else if (used_ > 3 * unused_) largest_ = std::min(largest_ * 2, kMaxWindow);
  used_ = unused_ = 0;
}

Window Prefetcher::on_fault(PageIndex index) {
  auto page = static_cast<int64_t>(index);
  used_window_ = 0;
  passed_.count = 0;
  current_ = find(page);
  Stream& s = *current_;
  s.age = ++clock_;
  if (s.window > 0) return extend(s, page);
  int64_t distance = page - s.last;
  if (s.last >= 0 && distance == s.stride) return extend(s, page);  // the third fault at equal distance confirms
  s.stride = s.last >= 0 ? distance : 0;
  s.last = s.fault = page;
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
