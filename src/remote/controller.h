// Requests to the controller of a pool. Ordinary code: not for use during a fault.
#pragma once
#include <string>

#include "base/status.h"
#include "transport/dial.h"
#include "wire/protocol.h"

namespace farside::remote {

// The controller's list of servers. One connection and two round trips, each of which may take as long as the timeout.
// token: may be null.
Status list_servers(const transport::Endpoint& controller, const char* token, wire::ServersReply* servers,
                    uint64_t timeout_ns = transport::kDialTimeoutNs);

// Reports the copies that this process lacks, to be shown by `farside pool status`.
Status report_copies(const transport::Endpoint& controller, const char* token, const wire::CopiesReport& report,
                     uint64_t timeout_ns);

// Says what an operator wants of the server with this address. The token needs the right to operate.
Status order_server(const transport::Endpoint& controller, const char* token, const std::string& address,
                    wire::Order order);

}  // namespace farside::remote
