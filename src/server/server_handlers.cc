#include "server/server_handlers.h"

#include <cerrno>

#include "base/clock.h"
#include "base/log.h"
#include "server/access/tokens.h"

namespace farside::server {

wire::StatsReply collect_stats(const MemoryPool::Usage& u, const Counters& c) {
  return {u.capacity, u.charged,  u.stored,    c.clients,        u.regions,    u.snapshots,        c.reads, c.writes,
          c.discards, c.bytes_in, c.bytes_out, c.refused_tokens, c.bad_frames, c.refused_requests, 0};
}

// Clients need to know how much is free in order to place their data, but not what others do.
Outcome ServerHandlers::stats(wire::Bytes) {
  wire::StatsReply all = collect_stats(pool_->usage(), *counters_);
  all.draining = *draining_;
  if (tenant_->may(kMaySeeCounts)) return replies_->reply(wire::bytes_of(all));
  wire::StatsReply space = {};
  space.capacity_bytes = all.capacity_bytes;
  space.charged_bytes = all.charged_bytes;
  space.draining = all.draining;
  return replies_->reply(wire::bytes_of(space));
}

Outcome ServerHandlers::ping(wire::Bytes payload) {
  return payload.empty() ? replies_->reply({}) : replies_->refuse(EINVAL);
}

// No reply: the client expects its first reply on the new connection.
Outcome ServerHandlers::connect(wire::Bytes payload) {
  if (payload.empty() && socket_->accept_passed()) return Outcome::kDone;
  return replies_->close(EBADMSG, "a request to connect without a socket");
}

Outcome ServerHandlers::take_report(wire::Bytes payload) {
  if (!tenant_->may(kMayReport)) return replies_->refuse(EPERM, "only the token of a server may report one");
  wire::ServerReport report;
  if (int r = wire::decode_report(payload, &report); r < 0) return replies_->refuse(EINVAL);
  wire::RegisterReply reply = {};
  int r = registry_->report(report, now_ns(), &reply);
  return r < 0 ? replies_->refuse(-r, "the list of the controller is full") : replies_->reply(wire::bytes_of(reply));
}

Outcome ServerHandlers::cordon(wire::Bytes payload) {
  if (!tenant_->may(kMayOperate))
    return replies_->refuse(EPERM,
                            "the token may not cordon or drain servers; add allow=operate to its line in --tokens");
  wire::CordonRequest request;
  if (int r = wire::decode_cordon(payload, &request); r < 0) return replies_->refuse(EINVAL);
  if (registry_->order(request.address, request.order, now_ns()) < 0)
    return replies_->refuse(ENOENT, "the server is not in its list; use an address that farside pool status shows");
  const char* done = request.order == wire::Order::kDrain    ? "drains"
                     : request.order == wire::Order::kCordon ? "cordoned"
                                                             : "uncordoned";
  log(LogLevel::kInfo, "{} {} {}", tenant_->name.empty() ? "a client" : tenant_->name, done, request.address);
  return replies_->reply({});
}

Outcome ServerHandlers::take_copies(wire::Bytes payload) {
  if (!tenant_->may(kClientOperations))
    return replies_->refuse(EPERM, "only the token of a client may report its copies");
  wire::CopiesReport report;
  if (int r = wire::decode_copies(payload, &report); r < 0) return replies_->refuse(EINVAL);
  int r = registry_->report_copies(report, now_ns());
  return r < 0 ? replies_->refuse(-r, "too many clients report to the controller") : replies_->reply({});
}

Outcome ServerHandlers::list_servers(wire::Bytes) {
  if (!tenant_->may(kClientOperations | kMayOperate))
    return replies_->refuse(EPERM, "only the token of a client may list servers");
  auto answer = std::make_unique<wire::ServersReply>();
  answer->copies = registry_->copies(now_ns());
  for (const wire::ServerEntry& server : registry_->servers(now_ns())) answer->servers[answer->count++] = server;
  return replies_->reply(wire::bytes_of(*answer));
}

}  // namespace farside::server
