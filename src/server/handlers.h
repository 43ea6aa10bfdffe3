// The requests of an open connection, by operation: which handler executes one, and what it needs. Used by one thread
// at a time.
#pragma once
#include <optional>

#include "server/authentication.h"
#include "server/call_handlers.h"
#include "server/data_handlers.h"
#include "server/server_handlers.h"
#include "server/server_state.h"

namespace farside::server {

class Handlers {
 public:
  Handlers(const Client& client, ServerState* server, ClientSocket* socket, Replies* replies);

  // Executes a request, or its next piece. Not HELLO, PROVE and ERROR.
  Outcome execute(wire::Op op, wire::Bytes payload);
  // Whether the request is to be executed by a thread of the connection's own.
  bool needs_thread(wire::Op op) const { return op == wire::Op::kCallOpen && calls_ && calls_->can_open(); }
  // A request is finished: returns the visits of its pieces.
  uint64_t finish() { return data_ ? data_->finish() : 0; }
  CallHandlers* calls() { return &*calls_; }

 private:
  struct Row;
  static const Row& row_of(wire::Op op);

  Replies* const replies_;
  ServerHandlers server_;
  // Of a connection that has a region.
  std::optional<DataHandlers> data_;
  std::optional<CallHandlers> calls_;
};

}  // namespace farside::server
