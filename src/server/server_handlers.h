// Requests that concern no region: the numbers of the server, new connections, and the list of a controller. Used by
// one thread at a time.
#pragma once
#include <memory>

#include "server/client_socket.h"
#include "server/regions/memory_pool.h"
#include "server/registry.h"
#include "server/replies.h"

namespace farside::server {

class ServerHandlers {
 public:
  // registry: of a controller; null elsewhere, where only stats(), ping() and connect() are called.
  ServerHandlers(std::shared_ptr<Tenant> tenant, MemoryPool* pool, Counters* counters,
                 const std::atomic<bool>* draining, Registry* registry, ClientSocket* socket, Replies* replies)
      : tenant_(std::move(tenant)),
        pool_(pool),
        counters_(counters),
        draining_(draining),
        registry_(registry),
        socket_(socket),
        replies_(replies) {}

  bool is_controller() const { return registry_ != nullptr; }
  Outcome stats(wire::Bytes payload);
  Outcome ping(wire::Bytes payload);
  Outcome connect(wire::Bytes payload);
  Outcome take_report(wire::Bytes payload);
  Outcome list_servers(wire::Bytes payload);
  Outcome cordon(wire::Bytes payload);
  Outcome take_copies(wire::Bytes payload);

 private:
  const std::shared_ptr<Tenant> tenant_;
  MemoryPool* const pool_;
  Counters* const counters_;
  const std::atomic<bool>* const draining_;
  Registry* const registry_;
  ClientSocket* const socket_;
  Replies* const replies_;
};

// The numbers of the whole server, as in the reply to kStats.
wire::StatsReply collect_stats(const MemoryPool::Usage& usage, const Counters& counters);

}  // namespace farside::server
