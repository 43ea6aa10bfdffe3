#include "remote/call_channel.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace farside::remote {
namespace {

constexpr uint64_t kReplyTimeoutNs = 10'000'000'000;  // of the server, for what takes no time
constexpr size_t kReplyBytes = sizeof(wire::CallReply) + wire::kMaxCallBytes;
constexpr size_t kHeader = sizeof(wire::FrameHeader);

// A buffer in near memory.
struct Near {
  explicit Near(size_t n) : data(static_cast<std::byte*>(near_alloc(n))), bytes(n) {}
  ~Near() { near_free(data, bytes); }
  Near(const Near&) = delete;
  Near& operator=(const Near&) = delete;
  std::span<std::byte> first(size_t n) const { return {data, n}; }
  std::byte* const data;
  const size_t bytes;
};

}  // namespace

CallChannel::~CallChannel() {
  close();
  near_free(reply_, kReplyBytes);
}

Status CallChannel::open() {
  if (is_open()) return {};
  Status status;
  fd_ = store_.open_connection(&status);
  if (fd_ < 0)
    return Status::error(ECONNRESET, "cannot call functions on memory server {}: {}", store_.address(), status.text());
  known_count_ = 0;
  struct {
    wire::FrameHeader header;
    wire::CallOpen open;
  } request = {{}, {base_, process_}};
  size_t bytes;
  status = exchange(wire::Op::kCallOpen, std::as_writable_bytes(std::span(&request, 1)),
                    std::as_writable_bytes(std::span(&limits_, 1)), &bytes, kReplyTimeoutNs);
  if (!status.ok()) close();
  return status;
}

Status CallChannel::exchange(wire::Op op, std::span<std::byte> frame, std::span<std::byte> reply, size_t* bytes,
                             uint64_t timeout) {
  wire::ErrorReply error;
  int r = transport::exchange_frame(fd_, op, frame, reply, bytes, now_ns() + timeout, times_, &error);
  if (r == 0) return {};
  if (error.code != 0) return Status::error(-r, "memory server {} refused a call: {}", store_.address(), error.text);
  close();
  if (r == -EBADMSG)
    return Status::error(EBADMSG, "a reply of memory server {} to a call was damaged", store_.address());
  return Status::error(ECONNRESET, "the connection to memory server {} broke during a call", store_.address());
}

bool CallChannel::knows(const wire::Digest& hash) const {
  return std::find(known_, known_ + known_count_, hash) != known_ + known_count_;
}

Status CallChannel::add(const CallObject& object, uint32_t* number) {
  auto* end = known_ + known_count_;
  auto* found = std::find(known_, end, object.hash);
  *number = static_cast<uint32_t>(found - known_);
  if (found != end) return {};
  Near buffer(kHeader + sizeof(wire::CallCode) + wire::kMaxDataBytes / 2);
  wire::CallCode head = {};
  memcpy(head.hash, object.hash.data(), sizeof head.hash);
  head.bytes = object.bytes.size();
  wire::CallCodeReply reply = {};
  // The first request asks; the others send.
  for (size_t part = 0; reply.complete == 0;
       part = std::min<size_t>(wire::kMaxDataBytes / 2, head.bytes - head.offset)) {
    memcpy(buffer.data + kHeader, &head, sizeof head);
    if (part > 0) memcpy(buffer.data + kHeader + sizeof head, object.bytes.data() + head.offset, part);
    size_t bytes;
    Status sent = exchange(wire::Op::kCallCode, buffer.first(kHeader + sizeof head + part),
                           std::as_writable_bytes(std::span(&reply, 1)), &bytes, kReplyTimeoutNs);
    if (!sent.ok()) return sent;
    head.offset += part;
    if (reply.complete == 0 && part > 0 && head.offset == head.bytes)
      return Status::error(EBADMSG, "a reply of memory server {} to a call was damaged", store_.address());
  }
  if (reply.object != known_count_ || known_count_ == wire::kMaxCallObjects)
    return Status::error(EBADMSG, "a reply of memory server {} to a call was damaged", store_.address());
  known_[known_count_++] = object.hash;
  *number = reply.object;
  return {};
}

// The server limits the time of loading, and that of the call.
Status CallChannel::call(std::span<std::byte> frame, wire::CallReply* reply) {
  if (!reply_) reply_ = static_cast<std::byte*>(near_alloc(kReplyBytes));
  result_bytes_ = 0;
  size_t bytes = 0;
  uint64_t timeout = 2 * limits_.wall_ns + kReplyTimeoutNs;
  Status status = exchange(wire::Op::kCall, frame, {reply_, kReplyBytes}, &bytes, timeout);
  if (!status.ok()) return status;
  if (wire::decode_call_reply({reply_, bytes}, reply) < 0) {
    close();
    return Status::error(ECONNRESET, "a reply of memory server {} to a call was damaged", store_.address());
  }
  result_bytes_ = reply->result_bytes;
  return {};
}

void CallChannel::close() {
  if (fd_ >= 0) store_.close_connection(fd_);
  fd_ = -1;
}

}  // namespace farside::remote
