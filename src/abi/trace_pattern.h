// The access pattern of one code location, learned from the addresses of its faults alone. Prefetching hides most
// faults of a stream, since the next fault is a whole window later. Therefore a jump counts as a repeated small step
// when every page in between is near. The recorder uses it during faults: plain data, no system calls, no allocation.
// Not thread-safe: each pattern belongs to one thread.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "base/bits.h"

namespace farside {

struct TracePattern {
  static constexpr unsigned kStreams = 4;
  static constexpr unsigned kStrides = 4;

  // One stream of the location. Code that merges or copies has several. `last` is 0 where unused.
  struct AccessStream {
    uint64_t last = 0;
    int64_t stride = 0;  // bytes; 0: unknown
    uint64_t used = 0;   // clock of the last fault
  };
  struct StrideCount {
    int64_t stride = 0;
    uint64_t count = 0;
  };

  uint64_t same = 0;           // faults in the page of the previous fault
  uint64_t sequential = 0;     // in the page after it
  uint64_t strided = 0;        // at the same distance as the previous two
  uint64_t random = 0;         // none of these
  uint64_t chase_checked = 0;  // faults checked for a pointer chase (preload/trace/trace.cc)
  uint64_t chase_found = 0;    // of these, with the address in memory near the previous fault
  uint64_t last = 0;           // address of the last fault
  uint64_t clock = 0;
  StrideCount strides[kStrides];  // the most frequent ones of `strided` faults, by Misra and Gries
  AccessStream streams[kStreams];
};

enum class TraceStep { kFirst, kSame, kSequential, kStrided, kRandom };

namespace trace_pattern {

inline constexpr int64_t kPage = kPageSize;
inline constexpr int64_t kMaxSteps = 96;  // a prefetch window, and the pages beyond it that were near already

inline int64_t page_of(uint64_t address) { return static_cast<int64_t>(address / kPageSize); }

// True if all pages between `from` and `to` at this stride are near, and they may be one prefetch window.
template <typename IsNear>
bool is_fetched_ahead(int64_t from, int64_t to, int64_t stride, IsNear is_near) {
  int64_t steps = (to - from) / stride;
  if (steps < 3 || steps > kMaxSteps || (to - from) % stride != 0) return false;
  for (int64_t at = from + stride; at != to; at += stride) {
    if (!is_near(at)) return false;
  }
  return true;
}

// The stride in pages with which prefetching led from `from` to `to`, or 0. Prefetching begins after several faults at
// equal distances, so strides other than one page are known by then.
template <typename IsNear>
int64_t stride_fetched_ahead(int64_t from, int64_t to, int64_t known, IsNear is_near) {
  for (int64_t stride : {int64_t{1}, int64_t{-1}, known}) {
    if (stride != 0 && is_fetched_ahead(from, to, stride, is_near)) return stride;
  }
  return 0;
}

// How a fault at `address` continues the stream; *stride is then the distance in bytes.
template <typename IsNear>
TraceStep step_of(const TracePattern::AccessStream& stream, uint64_t address, IsNear is_near, int64_t* stride) {
  int64_t from = page_of(stream.last), to = page_of(address);
  auto bytes = static_cast<int64_t>(address - stream.last);
  *stride = bytes;
  if (from == to) return TraceStep::kSame;
  bool a_page = to - from == 1 && bytes < kPage + kPage / 4;
  if (a_page) return TraceStep::kSequential;
  if (bytes == stream.stride) return TraceStep::kStrided;
  *stride = (to - from) * kPage;
  if (to - from == 1) return TraceStep::kSequential;
  if (to - from == -1) return TraceStep::kStrided;
  int64_t ahead = stride_fetched_ahead(from, to, stream.stride / kPage, is_near);
  *stride = ahead * kPage;
  if (ahead == 1) return TraceStep::kSequential;
  return ahead != 0 ? TraceStep::kStrided : TraceStep::kRandom;
}

inline void count_stride(TracePattern& pattern, int64_t stride) {
  TracePattern::StrideCount* empty = nullptr;
  for (auto& s : pattern.strides) {
    if (s.count > 0 && s.stride == stride) {
      s.count++;
      return;
    }
    if (s.count == 0) empty = &s;
  }
  if (empty) {
    *empty = {stride, 1};
    return;
  }
  for (auto& s : pattern.strides) s.count--;
}

inline void count_step(TracePattern& pattern, TraceStep step, int64_t stride) {
  switch (step) {
    case TraceStep::kFirst:
      break;
    case TraceStep::kSame:
      pattern.same++;
      break;
    case TraceStep::kSequential:
      pattern.sequential++;
      break;
    case TraceStep::kStrided:
      pattern.strided++;
      count_stride(pattern, stride);
      break;
    case TraceStep::kRandom:
      pattern.random++;
      break;
  }
}

// Starts a stream with a fault that continues none, in place of the stream that was unused for longest. Its distance
// from the last fault is its first guess at a stride.
inline void begin_stream(TracePattern& pattern, uint64_t address) {
  TracePattern::AccessStream* oldest = &pattern.streams[0];
  for (auto& s : pattern.streams) {
    if (s.used < oldest->used) oldest = &s;
  }
  *oldest = {address, pattern.last ? static_cast<int64_t>(address - pattern.last) : 0, pattern.clock};
}

}  // namespace trace_pattern

// Adds a fault. is_near(page number) returns whether a page is near now.
template <typename IsNear>
TraceStep note_access(TracePattern& pattern, uint64_t address, IsNear is_near) {
  using namespace trace_pattern;  // NOLINT: the helpers above
  pattern.clock++;
  TraceStep best = pattern.last ? TraceStep::kRandom : TraceStep::kFirst;
  TracePattern::AccessStream* continued = nullptr;
  int64_t best_stride = 0;
  for (auto& stream : pattern.streams) {
    if (stream.last == 0 || best == TraceStep::kSame) continue;
    int64_t stride = 0;
    TraceStep step = step_of(stream, address, is_near, &stride);
    if (step >= best || step == TraceStep::kRandom) continue;
    best = step;
    best_stride = stride;
    continued = &stream;
  }
  count_step(pattern, best, best_stride);
  if (continued) *continued = {address, best == TraceStep::kSame ? continued->stride : best_stride, pattern.clock};
  else begin_stream(pattern, address);
  pattern.last = address;
  return best;
}

}  // namespace farside
