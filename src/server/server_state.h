// What all connections of a server share. The members are thread-safe or constant.
#pragma once
#include <atomic>
#include <memory>

#include "server/access/admission.h"
#include "server/access/tokens.h"
#include "server/calls.h"
#include "server/counters.h"
#include "server/regions/memory_pool.h"
#include "server/registry.h"
#include "ucx/helper.h"

namespace farside::server {

struct ServerState {
  ServerState(uint64_t memory, uint64_t quota, uint64_t grace_ns, Compression compression,
              std::unique_ptr<Overflow> overflow, const std::vector<TokenEntry>& entries)
      : pool(memory, quota, grace_ns, compression, std::move(overflow)), tokens(entries, pool.account()) {}

  MemoryPool pool;
  Tokens tokens;
  Counters counters;
  std::atomic<bool> draining{false};
  std::unique_ptr<Registry> registry;  // of a controller; null elsewhere
  ucx::Settings ucx;
  Admission admission;
  std::unique_ptr<CallService> calls;  // null: the server executes no functions
};

}  // namespace farside::server
