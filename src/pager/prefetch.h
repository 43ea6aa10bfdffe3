// Stride detection for one thread. Keeps a few streams, each a run of faults at equal distance; a fault that continues
// a stream gets a window of pages to fetch at once. Windows are mapped whole, so the next fault of the stream comes at
// the page after the window, or at the first page of the window that is under way already (next_window): that page is
// the marker that tells the window was used up. Then the window doubles; a stream that is not continued is forgotten by
// age. Pages of a window that are near already are passed over, and the marker may be one of them, so a stream is also
// continued a few pages beyond it. Several streams at once, because copying and merging programs walk through several
// places in turn. (Leap's majority vote, used by the papers, follows one.)
// Not thread-safe; no system calls; safe under a fault.
#pragma once
#include <cstdint>

#include "pager/page_word.h"

namespace farside::pager {

// The pages from + stride, from + 2 * stride, ..., from + count * stride.
struct Window {
  int64_t from = 0;
  int64_t stride = 1;  // may be negative
  unsigned count = 0;  // 0: nothing to fetch
};

class Prefetcher {
 public:
  static constexpr unsigned kFirstWindow = 4;
  static constexpr unsigned kMaxWindow = 64;
  static constexpr int64_t kMaxStride = 64;

  // Tells of a fault, and returns what to fetch beyond it.
  Window on_fault(PageIndex page);
  // What to fetch after the window that was taken just now, to be under way while that one is used.
  Window next_window() const { return {current_->last, current_->stride, current_->window}; }

  // The pages of the last window of the stream that on_fault just continued were all used: how many they were.
  unsigned used_window() const { return used_window_; }

  // Tells how far the window reached (it ends early where memory or frames do), and how many of its pages were fetched;
  // the others were near. under_way: they are not there yet, and `marker` is the first of them.
  void taken(unsigned reached, unsigned fetched);
  void under_way(unsigned reached, unsigned fetched, PageIndex marker);

 private:
  struct Stream {
    int64_t last = -1;       // page of the last fault or of the end of the last window
    int64_t next = -1;       // page whose fault continues the stream
    int64_t stride = 0;      // 0: only one fault seen
    unsigned window = 0;     // 0: not confirmed
    unsigned ahead = 0;      // pages that the last window fetched
    unsigned under_way = 0;  // pages of the window after that
    uint32_t age = 0;
  };
  static constexpr unsigned kStreams = 12;
  static constexpr int64_t kSlack = 16;  // how many pages of the stream beyond the marker still continue it

  static bool continues(const Stream& s, int64_t page) {
    if (s.window == 0) return false;
    return follows(s, page, s.next) || follows(s, page, s.last + s.stride);  // the second: others took the marker in
  }
  static bool follows(const Stream& s, int64_t page, int64_t expected) {
    int64_t beyond = page - expected;
    return beyond % s.stride == 0 && beyond / s.stride >= 0 && beyond / s.stride <= kSlack;
  }

  Stream* find(int64_t page);
  Window extend(Stream& s, int64_t page);
  void reach(unsigned pages);

  Stream streams_[kStreams];
  Stream* current_ = nullptr;
  unsigned used_window_ = 0;
  uint32_t clock_ = 0;
};

}  // namespace farside::pager
