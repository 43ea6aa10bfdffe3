// Decides whether a fault continues a stream, that is whether Farside would have prefetched the page. The rules are
// those of pager/thread/prefetch.h without windows, because here every page of a stream is reported.
#pragma once
#include <array>
#include <cstdint>
#include <cstdlib>

namespace farside::plan {

class Streams {
 public:
  bool continues(int64_t page) {
    clock_++;
    AccessStream* oldest = &streams_[0];
    for (AccessStream& s : streams_) {
      if (s.follows(page)) return s.go_on(page, clock_);
      if (s.used < oldest->used) oldest = &s;
    }
    for (AccessStream& s : streams_) {
      if (!s.may_begin(page)) continue;
      s = {page, page - s.last, clock_};
      return false;
    }
    *oldest = {page, 0, clock_};
    return false;
  }

 private:
  static constexpr int64_t kMaxStride = 64, kSlack = 16;

  struct AccessStream {
    int64_t last = 0, stride = 0;
    uint64_t used = 0;  // time of its last fault; 0: unused
    bool follows(int64_t page) const {
      if (stride == 0 || (page - last) % stride != 0) return false;
      int64_t steps = (page - last) / stride;
      return steps >= 1 && steps <= kSlack;
    }
    bool go_on(int64_t page, uint64_t now) {
      last = page;
      used = now;
      return true;
    }
    bool may_begin(int64_t page) const { return used > 0 && page != last && std::llabs(page - last) <= kMaxStride; }
  };

  std::array<AccessStream, 12> streams_;
  uint64_t clock_ = 0;
};

}  // namespace farside::plan
