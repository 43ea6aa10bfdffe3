// Requests for calls of functions. The first one makes the connection one for calls. Used by the connection's thread.
#pragma once
#include <memory>

#include "base/buffer.h"
#include "server/calls.h"
#include "server/client_socket.h"
#include "server/replies.h"

namespace farside::server {

class CallHandlers {
 public:
  // service: null: the server executes no functions.
  CallHandlers(CallService* service, Region* region, ClientSocket* socket, Replies* replies)
      : service_(service), region_(region), socket_(socket), replies_(replies) {}

  // Whether open() starts processes, and waits for their end: a thread of its own then executes it.
  bool can_open() const;
  // Whether the connection is for calls.
  bool is_open() const { return calls_ != nullptr; }

  Outcome open(wire::Bytes payload);
  Outcome add_code(wire::Bytes payload);
  Outcome call(wire::Bytes payload);

  // After kToHost: the client's process executes the calls in the input, and those that follow, until it does not want
  // the connection any more. *executed: calls. False: the connection is over.
  bool give_to_host(Buffer* input, uint64_t* executed);

 private:
  std::byte* reserve_reply() { return replies_->reserve(sizeof(wire::CallReply) + wire::kMaxCallBytes); }
  Outcome commit_reply(const std::byte* reply, uint64_t request);

  CallService* const service_;
  Region* const region_;
  ClientSocket* const socket_;
  Replies* const replies_;
  std::unique_ptr<Calls> calls_;
};

}  // namespace farside::server
