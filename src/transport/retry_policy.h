// How long a client waits for a memory server that does not reply (`farside run --patience`).
#pragma once
#include <cstdint>

namespace farside::transport {

struct RetryPolicy {
  uint64_t limit_ns = 25'000'000'000;  // since the last completed request; less than the 30 s for which callers wait
  // Without progress on one connection, before it is replaced.
  uint64_t attempt_timeout_ns() const { return limit_ns / 8; }
};

}  // namespace farside::transport
