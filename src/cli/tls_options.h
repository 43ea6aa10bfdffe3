// The option --tls of commands that connect to servers or controllers, and the address of a controller.
#pragma once
#include <memory>
#include <string>

#include "cli/run_settings.h"
#include "command/command.h"
#include "launch/private_relay.h"
#include "remote/address.h"

namespace farside::cli {

struct TlsArguments : TlsSettings {
  GivenOptions given;           // as the command line has them
  bool required = false;        // for connections to other hosts
  bool verify_clients = false;  // of farside serve
  Status read();                // sets the rest
};

// --tls, as farside run has it.
void add_tls_option(Command& command, TlsArguments* arguments);

// "host:port" has the scheme pool://.
std::string with_pool_scheme(const std::string& address);

// A controller and, where it is reached over TLS, the relay to it, which is kept as long as the address is used.
class ControllerAddress {
 public:
  // With one of the schemes pool:// and pool+tls://, or none.
  Status open(const std::string& text, const TlsArguments& arguments);
  const transport::Endpoint& endpoint() const { return address_.endpoint; }

 private:
  std::unique_ptr<PrivateDirectory> directory_;
  std::unique_ptr<PrivateRelay> relay_;
  remote::Address address_;
};

}  // namespace farside::cli
