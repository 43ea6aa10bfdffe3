// The addresses of memory servers as people write them.
#pragma once
#include "base/status.h"
#include "transport/dial.h"
#include "transport/shm.h"

namespace farside::remote {

struct Address {
  transport::Endpoint endpoint;
  transport::ShmRegion::Link link;  // shm's experiment settings
  bool is_pool = false;             // the endpoint is a controller, which knows the memory servers
  bool is_shm() const { return endpoint.is_unix(); }
};

// "tcp://host:port", "shm://path[?latency_us=4&gbps=10]" or "pool://host:port". Host names are looked up here and never
// again; number forms need no look-up and allocate nothing.
Result<Address> parse_address(const char* text);

}  // namespace farside::remote
