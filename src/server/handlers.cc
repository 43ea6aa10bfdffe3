#include "server/handlers.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace farside::server {
namespace {

enum class Needs { kNothing, kRegion, kController };

}  // namespace

struct Handlers::Row {
  wire::Op op;
  Needs needs;
  bool is_for_calls;  // allowed on a connection for calls
  Outcome (*execute)(Handlers& handlers, wire::Bytes payload);
};

const Handlers::Row& Handlers::row_of(wire::Op op) {
  using wire::Bytes, wire::Op;
  static constexpr Row kRows[] = {
      {Op::kRead, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->read(p); }},
      {Op::kWrite, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->write(p); }},
      {Op::kDiscard, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->discard(p); }},
      {Op::kGrow, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->grow(p); }},
      {Op::kShrink, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->shrink(p); }},
      {Op::kShare, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->share(p); }},
      {Op::kRevoke, Needs::kRegion, false, [](Handlers& h, Bytes p) { return h.data_->revoke(p); }},
      {Op::kCallOpen, Needs::kRegion, true, [](Handlers& h, Bytes p) { return h.calls_->open(p); }},
      {Op::kCallCode, Needs::kRegion, true, [](Handlers& h, Bytes p) { return h.calls_->add_code(p); }},
      {Op::kCall, Needs::kRegion, true, [](Handlers& h, Bytes p) { return h.calls_->call(p); }},
      {Op::kStats, Needs::kNothing, false, [](Handlers& h, Bytes p) { return h.server_.stats(p); }},
      {Op::kPing, Needs::kNothing, true, [](Handlers& h, Bytes p) { return h.server_.ping(p); }},
      {Op::kConnect, Needs::kNothing, false, [](Handlers& h, Bytes p) { return h.server_.connect(p); }},
      {Op::kRegister, Needs::kController, false, [](Handlers& h, Bytes p) { return h.server_.take_report(p); }},
      {Op::kServers, Needs::kController, false, [](Handlers& h, Bytes p) { return h.server_.list_servers(p); }},
      {Op::kCordon, Needs::kController, false, [](Handlers& h, Bytes p) { return h.server_.cordon(p); }},
      {Op::kCopies, Needs::kController, false, [](Handlers& h, Bytes p) { return h.server_.take_copies(p); }},
  };
  static constexpr auto kTable = [] {
    std::array<Row, wire::kOps> table = {};
    for (const Row& row : kRows) table[static_cast<size_t>(row.op)] = row;
    return table;
  }();
  static_assert(std::ranges::count(kTable, nullptr, &Row::execute) == 1 + 3,
                "0, HELLO, PROVE and ERROR have no handler");
  return kTable[static_cast<size_t>(op)];
}

Handlers::Handlers(const Client& client, ServerState* server, ClientSocket* socket, Replies* replies)
    : replies_(replies),
      server_(client.tenant, &server->pool, &server->counters, &server->draining, server->registry.get(), socket,
              replies) {
  if (!client.region) return;
  data_.emplace(client.region, &server->pool, &server->ucx, &server->counters, socket, replies);
  calls_.emplace(server->calls.get(), client.region, socket, replies);
}

Outcome Handlers::execute(wire::Op op, wire::Bytes payload) {
  const Row& row = row_of(op);
  if (row.needs == Needs::kRegion && !data_) return replies_->refuse(EINVAL, "this connection has no region");
  // Foreign code may have written this request: see decision 47.
  if (calls_ && calls_->is_open() && !row.is_for_calls)
    return replies_->refuse(EPERM, "this connection is for calls only");
  if (row.needs == Needs::kController && !server_.is_controller())
    return replies_->refuse(ENOTSUP, "this server is not a controller");
  return row.execute(*this, payload);
}

}  // namespace farside::server
