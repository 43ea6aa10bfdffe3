// The counters of a server. Changed by all threads, read by stats(). They are relaxed: a reader may see them at
// slightly different times.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/exposition.h"
#include "wire/protocol.h"

namespace farside::server {

using Counter = std::atomic<uint64_t>;

struct Counters {
  Counter clients{0};  // open connections; the others count since the start
  Counter reads{0}, writes{0}, discards{0};
  DurationHistogram durations[wire::kOps];  // of requests, by operation
  Counter bytes_in{0}, bytes_out{0};
  Counter refused_tokens{0}, bad_frames{0}, refused_requests{0};
};

inline void count(Counter& counter, uint64_t by = 1) { counter.fetch_add(by, std::memory_order_relaxed); }

}  // namespace farside::server
