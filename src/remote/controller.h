// Requests to the controller of a pool. Ordinary code: not for use during a fault.
#pragma once
#include "base/status.h"
#include "transport/dial.h"
#include "wire/protocol.h"

namespace farside::remote {

// The controller's list of servers. One connection and two round trips, for at most 9 seconds. token: may be null.
Status list_servers(const transport::Endpoint& controller, const char* token, wire::ServersReply* servers);

}  // namespace farside::remote
