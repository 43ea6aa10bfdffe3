// Whether the servers that --far names are different ones: copies of a page on one server under two names, as
// 127.0.0.1 and localhost, are lost together. Ordinary code: host names are resolved.
#pragma once
#include <string_view>

#include "base/status.h"

namespace farside::cli {

// addresses: as of --far, separated by commas. EINVAL names two of them that are one socket. What is no valid address,
// and what is reached through a relay, is not compared.
Status check_servers_differ(std::string_view addresses);

}  // namespace farside::cli
