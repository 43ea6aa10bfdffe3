// Requests for the content and the size of a connection's region. A call executes the next piece of its request
// (regions/piece.h); a request that has several is called again with the same payload. Used by one thread at a time.
#pragma once
#include <vector>

#include "server/client_socket.h"
#include "server/regions/memory_pool.h"
#include "server/replies.h"
#include "ucx/helper.h"

namespace farside::server {

class DataHandlers {
 public:
  DataHandlers(Region* region, MemoryPool* pool, const ucx::Settings* ucx, Counters* counters, ClientSocket* socket,
               Replies* replies)
      : region_(region), pool_(pool), ucx_(ucx), counters_(counters), socket_(socket), replies_(replies) {}

  Outcome read(wire::Bytes payload);
  Outcome write(wire::Bytes payload);
  Outcome discard(wire::Bytes payload);
  Outcome grow(wire::Bytes payload);
  Outcome shrink(wire::Bytes payload);
  Outcome share(wire::Bytes payload);
  Outcome revoke(wire::Bytes payload);

  // The request is finished: returns the visits of its pieces.
  uint64_t finish();

 private:
  static constexpr size_t kInPlaceBytes = 16 * 1024;  // reads of as much are sent without a copy

  Outcome change(wire::Op op, wire::Bytes payload, Counter* requests,
                 int (*execute)(Region*, const wire::ListRequest&, Progress*));

  Region* const region_;
  MemoryPool* const pool_;
  const ucx::Settings* const ucx_;
  Counters* const counters_;
  ClientSocket* const socket_;
  Replies* const replies_;
  Progress progress_;              // of the request that is being executed
  std::vector<std::byte> pieces_;  // what was read for it
};

}  // namespace farside::server
