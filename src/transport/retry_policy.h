// How long a client waits for a memory server that does not answer.
#pragma once
#include <cstdint>

namespace farside::transport {

struct RetryPolicy {
  uint64_t limit_ns = 25'000'000'000;  // less than callers wait, which is 30 s
  // One request on one connection, before another connection is tried.
  uint64_t retry_ns() const { return limit_ns / 8; }
};

}  // namespace farside::transport
