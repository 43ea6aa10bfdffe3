#include "pager/prefetch.h"

namespace farside::pager {

// The stream that this fault belongs to: one that expected it, else a young one nearby, else the oldest, started anew.
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
  s.window = s.window == 0 ? kFirstWindow : (s.window * 2 > kMaxWindow ? kMaxWindow : s.window * 2);
  s.last = page;
  s.ahead = 0;
  s.next = page + s.stride;
  return {s.stride, s.window};
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

void Prefetcher::taken(unsigned reached, unsigned fetched) {
  Stream& s = *current_;
  s.ahead = fetched;
  s.last += s.stride * static_cast<int64_t>(reached);
  s.next = s.last + s.stride;
  if (reached < s.window) s.window = reached < kFirstWindow ? kFirstWindow : reached;  // do not grow past what can be had
}

}  // namespace farside::pager
