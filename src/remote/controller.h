// What a client asks of a pool's controller. Ordinary code: not for use under a fault.
#pragma once
#include "base/status.h"
#include "transport/dial.h"
#include "wire/protocol.h"

namespace farside::remote {

// All servers that the controller knows. One connection and round trip, at most 5 seconds.
Status list_servers(const transport::Endpoint& controller, const char* token, wire::ServersReply* servers);

}  // namespace farside::remote
