// Builds and checks frames. No I/O, no allocation, no trust: every function that reads takes bytes from a peer that
// may be hostile, and returns 0 or a negative errno value (-EBADMSG: the peer does not keep to the protocol;
// -EPROTONOSUPPORT: it speaks another version; -EINVAL, -E2BIG, -ERANGE: a well-formed request that asks for nonsense).
#pragma once
#include <cstring>
#include <span>

#include "wire/protocol.h"

namespace farside::wire {

using Bytes = std::span<const std::byte>;

// The bytes of one of the structs of protocol.h, as they are sent.
template <typename T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// A header without its checksum, which seal() adds once the payload is known.
FrameHeader make_header(Op op, uint16_t flags, uint64_t request, uint32_t payload_bytes);

// The checksum of a header; continue it over the payload with crc32c().
uint32_t header_crc(const FrameHeader& header);

// Checks all that can be known before the payload is there: magic, version, op, flags, length.
int check_request_header(const FrameHeader& header);
int check_reply_header(const FrameHeader& header);

// The extents of a request. They may lie unaligned in a receive buffer, so they are copied out one by one.
class ExtentList {
 public:
  ExtentList() = default;
  ExtentList(const std::byte* first, uint32_t count) : first_(first), count_(count) {}
  uint32_t size() const { return count_; }
  Extent operator[](uint32_t i) const {
    Extent e;
    memcpy(&e, first_ + i * sizeof e, sizeof e);
    return e;
  }

 private:
  const std::byte* first_ = nullptr;
  uint32_t count_ = 0;
};

struct ListRequest {
  ExtentList extents;
  uint64_t total_bytes = 0;  // of all extents; for kDiscard too
  Bytes data;                // kWrite: exactly total_bytes
};

// Payloads of kRead, kWrite and kDiscard, checked against the size of the region that they are for.
int decode_list(Op op, Bytes payload, uint64_t region_bytes, ListRequest* out);

int decode_hello(Bytes payload, HelloRequest* out);
int decode_hello_reply(Bytes payload, HelloReply* out);
int decode_reserve(Bytes payload, ReserveRequest* out);
int decode_report(Bytes payload, ServerReport* out);
int decode_servers(Bytes payload, ServersReply* out);

// The error that a peer reports, always a valid negative errno value. *out's text is terminated and printable.
int decode_error(Bytes payload, ErrorReply* out);
ErrorReply make_error(int code, const char* text);

}  // namespace farside::wire
