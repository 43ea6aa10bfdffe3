// A server's metrics for Prometheus. Ordinary code; thread-safe.
#pragma once
#include "base/exposition.h"
#include "server/server_state.h"

namespace farside::server {

// The most regions, and the most tenants, that are shown one by one; the others are sums.
inline constexpr size_t kShownRegions = 20;

void append_metrics(ServerState* server, Exposition* out);

}  // namespace farside::server
