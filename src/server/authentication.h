// The beginning of a connection: HELLO, which is answered by a challenge, and PROVE, by which both sides prove that
// they know a token or the secret of the region (docs/internals/wire.md). It opens the region. Used by one thread at a
// time.
#pragma once
#include <memory>
#include <optional>

#include "server/access/admission.h"
#include "server/access/tokens.h"
#include "server/client_socket.h"
#include "server/regions/memory_pool.h"
#include "server/replies.h"
#include "wire/auth.h"

namespace farside::server {

// What a connection is for.
struct Client {
  std::shared_ptr<Tenant> tenant;  // of an open connection
  Region* region = nullptr;        // null: the connection has none. The pool counts the connection until its release()
  std::shared_ptr<Fence> fence;    // of the connection's channel; null if it has none
  uint64_t generation = 0;
};

class Authentication {
 public:
  // refusal: the reply to HELLO.
  Authentication(Admission::Refusal refusal, const Peer* peer, MemoryPool* pool, const Tokens* tokens,
                 Admission* admission, ClientSocket* socket, Replies* replies)
      : refusal_(refusal),
        peer_(peer),
        pool_(pool),
        tokens_(tokens),
        admission_(admission),
        socket_(socket),
        replies_(replies) {}

  Outcome greet(wire::Bytes payload);
  // *client has a region afterwards, too, where a later step failed.
  Outcome prove(wire::Bytes payload, Client* client);

 private:
  std::optional<Outcome> authenticate(const wire::Proof& proof, wire::Key* key, Client* client);
  std::optional<Outcome> open_region(const wire::Key& key, Client* client, wire::HelloReply* answer);
  Result<Region*> find_region(const wire::Key& key, const std::shared_ptr<Tenant>& tenant);
  bool replaces_older(Client* client);
  void note_client(Region* region);

  const Admission::Refusal refusal_;
  const Peer* const peer_;
  MemoryPool* const pool_;
  const Tokens* const tokens_;
  Admission* const admission_;
  ClientSocket* const socket_;
  Replies* const replies_;
  wire::Greeting greeting_ = {};
};

}  // namespace farside::server
