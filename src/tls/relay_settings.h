// How a relay connects to servers.
#pragma once
#include <memory>
#include <string>

#include "tls/credentials.h"

namespace farside::tls {

// Constant while a relay runs.
struct RelaySettings {
  std::shared_ptr<const Credentials> credentials;
  std::string name;  // expected in the certificates; "": the host of each server's address
};

}  // namespace farside::tls
