#include "server/data_handlers.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace farside::server {

// A large reply is sent from the region's memory. Into others the data is read.
Outcome DataHandlers::read(wire::Bytes payload) {
  wire::ListRequest list;
  int r = wire::decode_list(wire::Op::kRead, payload, region_->bytes(), &list);
  if (r < 0) return replies_->refuse(-r);
  auto send_it = [&](std::span<iovec> pieces) {
    return socket_->send_in_place(replies_->header(list.total_bytes), pieces);
  };
  if (!socket_->has_tls() && list.total_bytes >= kInPlaceBytes && region_->use_in_place(list.ranges, send_it)) {
    count(counters_->reads);
    return Outcome::kDone;
  }
  std::byte* data = replies_->reserve(list.total_bytes);
  std::byte* to = pieces_.empty() ? data : pieces_.data();
  r = region_->read(list.ranges, to, &progress_);
  if (r == kMore) {
    if (pieces_.empty()) pieces_.assign(data, data + list.total_bytes);
    return Outcome::kUnfinished;
  }
  if (r < 0) return replies_->refuse(-r);
  if (to != data) memcpy(data, to, list.total_bytes);
  count(counters_->reads);
  return replies_->commit(list.total_bytes);
}

Outcome DataHandlers::write(wire::Bytes payload) {
  return change(wire::Op::kWrite, payload, &counters_->writes,
                [](Region* region, const wire::ListRequest& list, Progress* progress) {
                  return region->write(list.ranges, list.data.data(), progress);
                });
}

Outcome DataHandlers::discard(wire::Bytes payload) {
  return change(wire::Op::kDiscard, payload, &counters_->discards,
                [](Region* region, const wire::ListRequest& list, Progress* progress) {
                  return region->discard(list.ranges, progress);
                });
}

Outcome DataHandlers::change(wire::Op op, wire::Bytes payload, Counter* requests,
                             int (*execute)(Region*, const wire::ListRequest&, Progress*)) {
  wire::ListRequest list;
  int r = wire::decode_list(op, payload, region_->bytes(), &list);
  if (r == 0) r = execute(region_, list, &progress_);
  if (r == kMore) return Outcome::kUnfinished;
  if (r < 0) return replies_->refuse(-r);
  count(*requests);
  return replies_->reply({});
}

Outcome DataHandlers::grow(wire::Bytes payload) {
  wire::ReserveRequest request;
  if (int r = wire::decode_reserve(payload, &request); r < 0) return replies_->refuse(-r);
  Result<uint64_t> reserved = pool_->grow(region_, request.bytes, request.sequence);
  if (reserved.ok()) return replies_->reply(wire::bytes_of(wire::ReserveReply{*reserved}));
  // Memory that was released may still be being freed, so there may be enough.
  if (reserved.status().code() == ENOMEM && !pool_->is_tidy()) return Outcome::kUnfinished;
  return replies_->refuse(reserved.status().code(), reserved.status().text());
}

Outcome DataHandlers::shrink(wire::Bytes payload) {
  wire::ReserveRequest request;
  if (int r = wire::decode_reserve(payload, &request); r < 0) return replies_->refuse(-r);
  return replies_->reply(wire::bytes_of(wire::ReserveReply{pool_->shrink(region_, request.bytes, request.sequence)}));
}

Outcome DataHandlers::share(wire::Bytes payload) {
  wire::ShareRequest request;
  if (int r = wire::decode_share(payload, region_->bytes(), &request); r < 0) return replies_->refuse(-r);
  auto answer = std::make_unique<wire::ShareReply>();
  int r = region_->share(*ucx_, request.offset, answer.get());
  return r < 0 ? replies_->refuse(-r) : replies_->reply(wire::bytes_of(*answer));
}

// The reply says that nothing reaches the region's memory any more, so it waits for the end of a process that was
// killed.
Outcome DataHandlers::revoke(wire::Bytes payload) {
  if (!payload.empty()) return replies_->refuse(EINVAL);
  region_->revoke_share().reset();
  return replies_->reply({});
}

uint64_t DataHandlers::finish() {
  pieces_.clear();
  pieces_.shrink_to_fit();
  return std::exchange(progress_, {}).visits;
}

}  // namespace farside::server
