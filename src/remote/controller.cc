#include "remote/controller.h"

#include <cstring>

#include "base/clock.h"
#include "wire/codec.h"

namespace farside::remote {

Status list_servers(const transport::Endpoint& controller, const char* token, wire::ServersReply* servers) {
  size_t token_bytes = token ? strlen(token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  transport::OwnFds fds;
  transport::Dialer dialer = {.endpoint = controller, .fds = &fds, .to_controller = true};
  dialer.hello.mode = wire::HelloMode::kObserve;
  dialer.key = wire::key_of_token({token, token_bytes});
  Status status;
  int fd = dialer.open(&status);
  if (fd < 0) return status;
  wire::ErrorReply error;
  auto bytes = std::as_writable_bytes(std::span(servers, 1));
  int r = transport::exchange(fd, wire::Op::kServers, {}, bytes, now_ns() + transport::kDialTimeoutNs, &error);
  fds.close(fd);
  if (r == 0) r = wire::decode_servers(bytes, servers);
  if (r == 0) return {};
  if (error.code != 0)
    return Status::error(-r, "controller {} rejected the request for its servers: {}", controller.name, error.text);
  return Status::error(-r, "controller {} did not reply; check that it runs as 'farside serve --controller'",
                       controller.name);
}

}  // namespace farside::remote
