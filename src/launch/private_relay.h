// A TLS relay in this process, on a Unix socket in a private directory that only the processes of a run can name.
#pragma once
#include <memory>
#include <string>

#include "launch/embedded_server.h"
#include "tls/relay.h"

namespace farside {

// The settings of connections to servers over TLS.
struct TlsSettings {
  tls::Files files;
  std::string name;  // expected in the certificates; "": the host of each address
};

class PrivateRelay {
 public:
  static Result<std::unique_ptr<PrivateRelay>> start(const PrivateDirectory& directory, const TlsSettings& settings);
  const std::string& socket() const { return socket_; }
  size_t connections() const { return relay_->connections(); }

 private:
  PrivateRelay() = default;
  std::string socket_;
  std::unique_ptr<tls::Relay> relay_;
};

}  // namespace farside
