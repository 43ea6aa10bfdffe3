#include "remote/controller.h"

#include <cstring>

#include "base/clock.h"
#include "wire/codec.h"

namespace farside::remote {
namespace {

// Sends one request over a connection of its own.
Status ask(const transport::Endpoint& controller, const char* token, wire::Op op, std::span<const std::byte> request,
           std::span<std::byte> reply, uint64_t timeout_ns = transport::kDialTimeoutNs) {
  size_t token_bytes = token ? strlen(token) : 0;
  if (token_bytes > wire::kMaxToken) return Status::error(EINVAL, "the token is longer than {} bytes", wire::kMaxToken);
  transport::OwnFds fds;
  transport::Dialer dialer = {.endpoint = controller, .fds = &fds, .to_controller = true};
  dialer.hello.mode = wire::HelloMode::kObserve;
  dialer.key = wire::key_of_token({token, token_bytes});
  Status status;
  int fd = dialer.open(&status, nullptr, {}, timeout_ns);
  if (fd < 0) return status;
  wire::ErrorReply error;
  int r = transport::exchange(fd, op, request, reply, now_ns() + timeout_ns, &error);
  fds.close(fd);
  if (r == 0) return {};
  if (error.code != 0) return Status::error(-r, "controller {} rejected the request: {}", controller.name, error.text);
  return Status::error(-r, "controller {} did not reply; check that it runs as 'farside serve --controller'",
                       controller.name);
}

}  // namespace

Status list_servers(const transport::Endpoint& controller, const char* token, wire::ServersReply* servers,
                    uint64_t timeout_ns) {
  auto bytes = std::as_writable_bytes(std::span(servers, 1));
  Status asked = ask(controller, token, wire::Op::kServers, {}, bytes, timeout_ns);
  if (!asked.ok() || wire::decode_servers(bytes, servers) == 0) return asked;
  return Status::error(EBADMSG, "controller {} sent a damaged list of its servers", controller.name);
}

Status report_copies(const transport::Endpoint& controller, const char* token, const wire::CopiesReport& report,
                     uint64_t timeout_ns) {
  return ask(controller, token, wire::Op::kCopies, wire::bytes_of(report), {}, timeout_ns);
}

Status order_server(const transport::Endpoint& controller, const char* token, const std::string& address,
                    wire::Order order) {
  wire::CordonRequest request = {};
  if (address.empty() || address.size() >= sizeof request.address)
    return Status::error(EINVAL, "'{}' is not the address of a server in the list of {}", address, controller.name);
  address.copy(request.address, address.size());
  request.order = order;
  return ask(controller, token, wire::Op::kCordon, wire::bytes_of(request), {});
}

}  // namespace farside::remote
