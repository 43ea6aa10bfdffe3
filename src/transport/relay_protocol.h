// What a client and the TLS relay of its run (tls/relay.h) send each other over a Unix socket, before the relay passes
// on the bytes of the connection: the client sends a RelayRequest and then its own data, without waiting; the relay
// sends a RelayReply when the first data of the server has arrived, or when the connection failed. Both are of the same
// build, so there are no versions.
#pragma once
#include <cstdint>

#include "transport/endpoint.h"

namespace farside::transport {

struct RelayRequest {
  sockaddr_storage address;  // of the server; the client has resolved its name
  uint32_t length;
  char name[sizeof(Endpoint::name)];  // "tls://host:port", which ends with a zero byte
};

struct RelayReply {
  int32_t error;   // 0, or an errno value, and then nothing follows
  char text[252];  // "": the server could not be reached
};

}  // namespace farside::transport
