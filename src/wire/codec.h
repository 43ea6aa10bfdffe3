// Builds and checks frames. Pure functions without I/O and memory allocation, used by clients and servers. The input of
// the checking and decoding functions comes from a peer that may be hostile. They return 0 or a negative errno value
// (-EBADMSG: the peer violates the protocol; -EPROTONOSUPPORT: it uses another version; -EINVAL, -E2BIG, -ERANGE: a
// well-formed but impossible request), and set *out only on success; decode_error differs, see there.
#pragma once
#include <cstring>
#include <span>

#include "wire/protocol.h"

namespace farside::wire {

// "read", for logs and metrics.
const char* name_of(Op op);
// "up". The last state is kDraining.
const char* name_of(ServerState state);

using Bytes = std::span<const std::byte>;

// The bytes of one of the structs of protocol.h, as they are sent.
template <typename T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// A header without its checksum, which the caller adds when the payload is complete.
FrameHeader make_header(Op op, uint16_t flags, uint64_t request, uint32_t payload_bytes);

// The checksum of a header; crc32c() continues it over the payload.
uint32_t header_crc(const FrameHeader& header);

// Check everything that does not need the payload: magic, version, op, flags, length.
int check_request_header(const FrameHeader& header);
int check_reply_header(const FrameHeader& header);

// Whether it is the message that an earlier reply to kStats is not true any more.
bool is_news(const FrameHeader& reply);

// The ranges of a request, in a receive buffer that outlives the list. They may be unaligned, so each is copied when
// accessed.
class RangeList {
 public:
  RangeList() = default;
  RangeList(const std::byte* first, uint32_t count) : first_(first), count_(count) {}
  uint32_t size() const { return count_; }
  ByteRange operator[](uint32_t i) const {
    ByteRange e;
    memcpy(&e, first_ + i * sizeof e, sizeof e);
    return e;
  }

 private:
  const std::byte* first_ = nullptr;
  uint32_t count_ = 0;
};

struct ListRequest {
  RangeList ranges;
  uint64_t total_bytes = 0;  // of all ranges; for kDiscard too
  Bytes data;                // kWrite: exactly total_bytes
};

// Payloads of kRead, kWrite and kDiscard, checked against the size of their region.
int decode_list(Op op, Bytes payload, uint64_t region_bytes, ListRequest* out);

int decode_hello(Bytes payload, HelloRequest* out);
int decode_proof(Bytes payload, Proof* out);
int decode_hello_reply(Bytes payload, HelloReply* out);
int decode_reserve(Bytes payload, ReserveRequest* out);
int decode_share(Bytes payload, uint64_t region_bytes, ShareRequest* out);
int decode_share_reply(Bytes payload, ShareReply* out);
int decode_report(Bytes payload, ServerReport* out);
int decode_register_reply(Bytes payload, RegisterReply* out);
int decode_cordon(Bytes payload, CordonRequest* out);
int decode_copies(Bytes payload, CopiesReport* out);
int decode_servers(Bytes payload, ServersReply* out);

struct CallCodeRequest {
  CallCode head;
  Bytes part;
};
struct CallPayload {
  CallRequest head;
  Bytes ranges;     // of CallRange, checked; maybe unaligned
  Bytes arguments;  // exactly argument_bytes
};
int decode_call_open(Bytes payload, CallOpen* out);
int decode_call_code(Bytes payload, CallCodeRequest* out);
int decode_call(Bytes payload, uint64_t region_bytes, CallPayload* out);
int decode_call_reply(Bytes payload, CallReply* out);
// Range number i of CallPayload::ranges.
inline CallRange call_range(Bytes ranges, uint32_t i) {
  CallRange range;
  memcpy(&range, ranges.data() + i * sizeof range, sizeof range);
  return range;
}

// Returns the error that a peer reports, always a valid negative errno value; -EBADMSG for a malformed payload. The
// text in *out is terminated and printable.
int decode_error(Bytes payload, ErrorReply* out);
ErrorReply make_error(int code, const char* text);

}  // namespace farside::wire
