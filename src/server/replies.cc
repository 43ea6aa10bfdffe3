#include "server/replies.h"

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "wire/crc32c.h"

namespace farside::server {
namespace {

const char* text_of(int code) {
  switch (code) {
    case EINVAL:
      return "malformed request";
    case ERANGE:
      return "outside the region";
    case E2BIG:
      return "more data than one request may carry";
    case ENOSPC:
      return "the reservation is exceeded";
    case ENOMEM:
      return "the server is full";
    case EIO:
      return "this snapshot was given up because the server was full";
    case ENOTSUP:
      return "this server has no UCX; start it with --ucx";
    default:
      return "the server cannot execute this request";
  }
}

}  // namespace

Outcome Replies::reply(wire::Bytes payload) {
  append(static_cast<wire::Op>(request_.op), payload);
  return Outcome::kDone;
}

Outcome Replies::refuse(int code, const char* text) {
  count(counters_->refused_requests);
  log_with(LogLevel::kDebug,
           {{"peer", peer_->name}, {"region", region_}, {"request", wire::name_of(static_cast<wire::Op>(request_.op))}},
           "refused a request: {}", text);
  append(wire::Op::kError, wire::bytes_of(wire::make_error(code, text)));
  return Outcome::kDone;
}

Outcome Replies::refuse(int code) { return refuse(code, text_of(code)); }

Outcome Replies::close(int code, const char* text) {
  if (code == EBADMSG) count(counters_->bad_frames);
  if (code == EACCES) count(counters_->refused_tokens);
  log_bad_peer(static_cast<wire::Op>(request_.op), text);
  append(wire::Op::kError, wire::bytes_of(wire::make_error(code, text)));
  return Outcome::kClose;
}

std::byte* Replies::reserve(size_t bytes) {
  return output_->reserve(sizeof(wire::FrameHeader) + bytes) + sizeof(wire::FrameHeader);
}

Outcome Replies::commit(size_t bytes, uint64_t request) {
  std::byte* payload = reserve(bytes);  // the same space: nothing was appended since
  wire::FrameHeader header = this->header(bytes);
  header.request = request;
  header.crc = wire::crc32c(wire::header_crc(header), payload, bytes);
  memcpy(payload - sizeof header, &header, sizeof header);
  output_->commit(sizeof header + bytes);
  return Outcome::kDone;
}

wire::FrameHeader Replies::header(size_t payload_bytes) const {
  return wire::make_header(static_cast<wire::Op>(request_.op), wire::kFlagReply, request_.request,
                           static_cast<uint32_t>(payload_bytes));
}

void Replies::log_bad_peer(wire::Op request, const char* what) const {
  static std::atomic<uint64_t> last{0};
  uint64_t now = now_ns(), before = last.load();
  if (now - before < 1'000'000'000 || !last.compare_exchange_strong(before, now)) return;
  log_with(LogLevel::kWarning, {{"peer", peer_->name}, {"region", region_}, {"request", wire::name_of(request)}},
           "closed a connection: {}", what);
}

void Replies::append(wire::Op op, wire::Bytes payload) {
  auto header = wire::make_header(op, wire::kFlagReply, request_.request, static_cast<uint32_t>(payload.size()));
  header.crc = wire::crc32c(wire::header_crc(header), payload.data(), payload.size());
  output_->append(&header, sizeof header);
  output_->append(payload.data(), payload.size());
}

}  // namespace farside::server
