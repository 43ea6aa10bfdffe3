// Stride detection for one thread. It keeps a few streams, each a run of faults at equal distance. A fault that
// continues a stream gets a window of pages to fetch at once. Windows are mapped whole, so the next fault of the stream
// is at the page after the window, or at the first page of the following window if that is in flight already
// (next_window). This page is called the marker: its fault shows that the window was used up. Then the window doubles.
// Streams that are not continued are replaced, the oldest first. Pages of a window that are near already are skipped,
// and the marker may be one of them, so a stream is also continued by faults a few pages beyond it. Several streams are
// kept at once, because copying and merging programs access several places in turn. (The majority vote of Leap, which
// the papers use, follows one.)
//
// What windows fetched counts as used when its stream passes it, and as unused when the stream is replaced. While
// most of it is unused, only streams that have just passed a window get large ones, and few others get any.
//
// Not thread-safe. Makes no system calls. Async-signal-safe.
#pragma once
#include <cstdint>

#include "pager/pages/page_word.h"

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

  // Records a fault, and returns what to fetch beyond it.
  Window on_fault(PageIndex page);
  // What to fetch after the window that was just recorded, so that it is in flight while that one is used.
  Window next_window() const { return {current_->last, current_->stride, current_->window}; }

  // The number of pages that the last window of the stream fetched, if the last fault showed that they were all used;
  // else 0.
  unsigned used_window() const { return used_window_; }
  // The pages that the stream passed since its fault before: what it fetched there was used.
  const Window& passed() const { return passed_; }

  // Record how far the window reached (it ends early at the end of an allocation or without free frames), and how many
  // of its pages were fetched; the others were near. record_next_window: the window is in flight, and `marker` is its
  // first page.
  void record_window(unsigned reached, unsigned fetched);
  void record_next_window(unsigned reached, unsigned fetched, PageIndex marker);

 private:
  struct Stream {
    int64_t last = -1;       // page of the last fault, or the end of the last window
    int64_t next = -1;       // page whose fault continues the stream
    int64_t stride = 0;      // 0: only one fault seen
    int64_t fault = -1;      // page of the last fault that continued it
    unsigned window = 0;     // 0: not confirmed
    unsigned ahead = 0;      // pages that the last window fetched
    unsigned in_flight = 0;  // pages of the window after that, which is in flight
    uint32_t age = 0;
  };
  static constexpr unsigned kStreams = 12;
  static constexpr unsigned kCheckPages = 256;  // judged pages after which the windows are adapted
  static constexpr unsigned kProbe = 16;        // windows; one of them is fetched while hardly any are used
  static constexpr int64_t kSlack = 16;         // pages of the stream beyond the marker whose faults still continue it

  static bool continues(const Stream& s, int64_t page) {
    if (s.window == 0) return false;
    // The second: another thread has made the marker near.
    return follows(s, page, s.next) || follows(s, page, s.last + s.stride);
  }
  static bool follows(const Stream& s, int64_t page, int64_t expected) {
    int64_t beyond = page - expected;
    return beyond % s.stride == 0 && beyond / s.stride >= 0 && beyond / s.stride <= kSlack;
  }

  Stream* find(int64_t page);
  Window extend(Stream& s, int64_t page);
  void reach(unsigned pages);
  void judge(unsigned used, unsigned unused);
  bool pauses();

  Stream streams_[kStreams];
  Stream* current_ = nullptr;
  // Pages of windows since the last check: a stream has passed them, or was replaced before it came so far.
  unsigned used_ = 0, unused_ = 0;
  unsigned largest_ = kMaxWindow;  // of a stream that passed no window; below kFirstWindow: one in kProbe gets any
  unsigned pauses_ = 0;
  unsigned used_window_ = 0;
  Window passed_;
  uint32_t clock_ = 0;
};

}  // namespace farside::pager
