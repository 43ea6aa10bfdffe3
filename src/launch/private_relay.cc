#include "launch/private_relay.h"

#include "server/listen.h"

namespace farside {

Result<std::unique_ptr<PrivateRelay>> PrivateRelay::start(const PrivateDirectory& directory,
                                                          const TlsSettings& settings) {
  auto context = tls::Credentials::for_client(settings.files);
  if (!context.ok()) return context.status();
  std::string path = directory.socket_file("relaying");
  auto listener = server::listen_unix(path, true);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<PrivateRelay> made(new PrivateRelay);
  auto relay = tls::Relay::start(*listener, {*context, settings.name});
  if (!relay.ok()) return relay.status();
  made->relay_ = std::move(*relay);
  auto hidden = directory.hide_socket(path);
  if (!hidden.ok()) return hidden.status();
  made->socket_ = *hidden;
  return made;
}

}  // namespace farside
