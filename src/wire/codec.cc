#include "wire/codec.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "wire/crc32c.h"

namespace farside::wire {
namespace {

constexpr int kMaxErrno = 4095;

template <typename T>
bool load_exact(Bytes payload, T* out) {
  if (payload.size() != sizeof(T)) return false;
  memcpy(out, payload.data(), sizeof(T));
  return true;
}

int check_common(const FrameHeader& header) {
  if (header.magic != kMagic) return -EBADMSG;
  if (header.version != kVersion) return -EPROTONOSUPPORT;
  if (header.payload_bytes > kMaxPayload) return -EBADMSG;
  return 0;
}

bool is_op(uint8_t op) { return op >= static_cast<uint8_t>(Op::kHello) && op <= static_cast<uint8_t>(kLastOp); }

bool all_zero(const uint8_t* bytes, size_t count) {
  return std::all_of(bytes, bytes + count, [](uint8_t b) { return b == 0; });
}

// Printable, and padded with zeros, so that it can be printed and compared as text.
bool check_text(std::span<const char> text) {
  size_t length = strnlen(text.data(), text.size());
  if (length == text.size()) return false;
  bool printable = std::all_of(text.data(), text.data() + length, [](char c) { return c > 0x20 && c < 0x7f; });
  return printable && all_zero(reinterpret_cast<const uint8_t*>(text.data()) + length, text.size() - length);
}

bool check_address(const char (&address)[kAddressBytes]) { return address[0] != 0 && check_text(address); }

bool check_report(const ServerReport& report) {
  return report.leaving <= 1 && report.order <= Order::kDrain && check_address(report.address) &&
         check_text(report.zone);
}

}  // namespace

const char* name_of(Op op) {
  static constexpr const char* kNames[] = {"unknown", "hello",  "read",      "write",     "discard",  "grow",
                                           "shrink",  "stats",  "ping",      "error",     "register", "servers",
                                           "connect", "prove",  "call_open", "call_code", "call",     "share",
                                           "revoke",  "cordon", "copies"};
  static_assert(std::size(kNames) == kOps);
  return kNames[op <= kLastOp ? static_cast<size_t>(op) : 0];
}

const char* name_of(ServerState state) {
  static constexpr const char* kNames[] = {"unknown", "up", "leaving", "silent", "cordoned", "draining"};
  return kNames[state <= ServerState::kDraining ? static_cast<size_t>(state) : 0];
}

FrameHeader make_header(Op op, uint16_t flags, uint64_t request, uint32_t payload_bytes) {
  return {kMagic, kVersion, static_cast<uint8_t>(op), flags, request, payload_bytes, 0};
}

uint32_t header_crc(const FrameHeader& header) { return crc32c(0, &header, kCheckedHeaderBytes); }

int check_request_header(const FrameHeader& header) {
  if (int r = check_common(header); r < 0) return r;
  if (header.flags != 0) return -EBADMSG;
  if (!is_op(header.op) || header.op == static_cast<uint8_t>(Op::kError)) return -EBADMSG;
  return 0;
}

int check_reply_header(const FrameHeader& header) {
  if (int r = check_common(header); r < 0) return r;
  if (header.flags != kFlagReply) return -EBADMSG;
  if (!is_op(header.op)) return -EBADMSG;
  return 0;
}

bool is_news(const FrameHeader& reply) {
  return reply.op == static_cast<uint8_t>(Op::kStats) && reply.request == 0 && reply.payload_bytes == 0 &&
         reply.crc == header_crc(reply);
}

int decode_list(Op op, Bytes payload, uint64_t region_bytes, ListRequest* out) {
  ListHeader head;
  if (payload.size() < sizeof head) return -EBADMSG;
  memcpy(&head, payload.data(), sizeof head);
  if (head.zero != 0 || head.count == 0 || head.count > kMaxRanges) return -EBADMSG;
  size_t list_bytes = sizeof head + head.count * sizeof(ByteRange);
  if (payload.size() < list_bytes) return -EBADMSG;

  RangeList ranges(payload.data() + sizeof head, head.count);
  uint64_t total = 0;
  for (uint32_t i = 0; i < head.count; i++) {
    ByteRange e = ranges[i];
    if (e.bytes == 0) return -EINVAL;
    if (e.bytes > region_bytes || e.offset > region_bytes - e.bytes) return -ERANGE;
    total += e.bytes;  // at most kMaxRanges * kMaxRegionBytes: cannot wrap
  }
  if (op != Op::kDiscard && total > kMaxDataBytes) return -E2BIG;
  if (payload.size() - list_bytes != (op == Op::kWrite ? total : 0)) return -EBADMSG;
  *out = {ranges, total, payload.subspan(list_bytes)};
  return 0;
}

int decode_hello(Bytes payload, HelloRequest* out) {
  HelloRequest hello;
  if (!load_exact(payload, &hello)) return -EBADMSG;
  if (hello.mode < HelloMode::kCreate || hello.mode > HelloMode::kObserve) return -EBADMSG;
  if (hello.zero != 0) return -EBADMSG;
  bool replaces = hello.channel != 0 || hello.generation != 0;
  if (replaces && (hello.mode != HelloMode::kAttach || hello.channel == 0 || hello.generation == 0)) return -EBADMSG;
  if (hello.mode == HelloMode::kCreate) {
    bool legal =
        hello.region_bytes > 0 && hello.region_bytes <= kMaxRegionBytes && hello.region_bytes % kPageBytes == 0;
    if (!legal) return -EINVAL;
  }
  *out = hello;
  return 0;
}

int decode_proof(Bytes payload, Proof* out) { return load_exact(payload, out) ? 0 : -EBADMSG; }

int decode_hello_reply(Bytes payload, HelloReply* out) {
  HelloReply reply;
  if (!load_exact(payload, &reply)) return -EBADMSG;
  if (reply.zero != 0 || reply.memory_files > kMaxMemoryFiles || reply.region_bytes > kMaxRegionBytes) return -EBADMSG;
  *out = reply;
  return 0;
}

int decode_reserve(Bytes payload, ReserveRequest* out) {
  ReserveRequest request;
  if (!load_exact(payload, &request)) return -EBADMSG;
  if (request.bytes == 0 || request.bytes % kSlabBytes != 0 || request.bytes > kMaxRegionBytes) return -EINVAL;
  if (request.sequence == 0) return -EINVAL;
  *out = request;
  return 0;
}

int decode_share(Bytes payload, uint64_t region_bytes, ShareRequest* out) {
  ShareRequest request;
  if (!load_exact(payload, &request)) return -EBADMSG;
  if (request.offset % kSlabBytes != 0) return -EINVAL;
  if (request.offset >= region_bytes) return -ERANGE;
  *out = request;
  return 0;
}

int decode_share_reply(Bytes payload, ShareReply* out) {
  ShareReply reply;
  if (!load_exact(payload, &reply)) return -EBADMSG;
  if (reply.epoch == 0 || reply.worker_bytes == 0 || reply.worker_bytes > sizeof reply.worker) return -EBADMSG;
  if (reply.key_bytes == 0 || reply.key_bytes > sizeof reply.key) return -EBADMSG;
  *out = reply;
  return 0;
}

int decode_report(Bytes payload, ServerReport* out) {
  ServerReport report;
  if (!load_exact(payload, &report) || !check_report(report)) return -EBADMSG;
  *out = report;
  return 0;
}

int decode_register_reply(Bytes payload, RegisterReply* out) {
  RegisterReply reply;
  if (!load_exact(payload, &reply) || reply.order > Order::kDrain || reply.zero != 0) return -EBADMSG;
  *out = reply;
  return 0;
}

int decode_cordon(Bytes payload, CordonRequest* out) {
  CordonRequest request;
  if (!load_exact(payload, &request) || request.order > Order::kDrain || request.zero != 0) return -EBADMSG;
  if (!check_address(request.address)) return -EBADMSG;
  *out = request;
  return 0;
}

int decode_copies(Bytes payload, CopiesReport* out) {
  CopiesReport report;
  if (!load_exact(payload, &report) || report.client == 0) return -EBADMSG;
  *out = report;
  return 0;
}

// The reply is large and callers may have a small stack, so it is checked in place. *out may be the payload itself.
int decode_servers(Bytes payload, ServersReply* out) {
  uint32_t head[2];
  if (payload.size() != sizeof *out) return -EBADMSG;
  memcpy(head, payload.data(), sizeof head);
  if (head[0] > kMaxPoolServers || head[1] != 0) return -EBADMSG;
  for (uint32_t i = 0; i < head[0]; i++) {
    ServerEntry e;
    memcpy(&e, payload.data() + offsetof(ServersReply, servers) + i * sizeof e, sizeof e);
    if (!check_report(e.report) || e.state < ServerState::kUp || e.state > ServerState::kDraining) return -EBADMSG;
  }
  memmove(out, payload.data(), sizeof *out);
  return 0;
}

int decode_call_open(Bytes payload, CallOpen* out) {
  CallOpen open;
  if (!load_exact(payload, &open)) return -EBADMSG;
  if (open.base % kPageBytes != 0 || open.process >= kMaxCallProcesses) return -EBADMSG;
  *out = open;
  return 0;
}

int decode_call_code(Bytes payload, CallCodeRequest* out) {
  CallCode head;
  if (payload.size() < sizeof head) return -EBADMSG;
  memcpy(&head, payload.data(), sizeof head);
  Bytes part = payload.subspan(sizeof head);
  if (head.bytes == 0 || head.offset > head.bytes || part.size() > head.bytes - head.offset) return -EBADMSG;
  *out = {head, part};
  return 0;
}

int decode_call(Bytes payload, uint64_t region_bytes, CallPayload* out) {
  CallRequest head;
  if (payload.size() < sizeof head) return -EBADMSG;
  memcpy(&head, payload.data(), sizeof head);
  if (head.range_count > kMaxCallRanges || head.argument_bytes > kMaxCallBytes) return -EBADMSG;
  size_t range_bytes = head.range_count * sizeof(CallRange);
  if (payload.size() != sizeof head + range_bytes + head.argument_bytes) return -EBADMSG;
  Bytes ranges = payload.subspan(sizeof head, range_bytes);
  uint64_t end = 0;
  for (uint32_t i = 0; i < head.range_count; i++) {
    CallRange r = call_range(ranges, i);
    if (r.bytes == 0 || r.offset % kPageBytes != 0 || r.bytes % kPageBytes != 0 || r.written > 1) return -EINVAL;
    if (r.bytes > region_bytes || r.offset > region_bytes - r.bytes || r.offset < end) return -ERANGE;
    end = r.offset + r.bytes;
  }
  *out = {head, ranges, payload.subspan(sizeof head + range_bytes)};
  return 0;
}

int decode_call_reply(Bytes payload, CallReply* out) {
  CallReply reply;
  if (payload.size() < sizeof reply) return -EBADMSG;
  memcpy(&reply, payload.data(), sizeof reply);
  if (reply.status > 0 || reply.status < -kMaxErrno || reply.started > 1 || reply.zero != 0) return -EBADMSG;
  if (reply.result_bytes > kMaxCallBytes || payload.size() != sizeof reply + reply.result_bytes) return -EBADMSG;
  *out = reply;
  return 0;
}

int decode_error(Bytes payload, ErrorReply* out) {
  ErrorReply error;
  if (!load_exact(payload, &error)) return -EBADMSG;
  if (error.code == 0 || error.code > kMaxErrno || error.text_bytes >= sizeof error.text) return -EBADMSG;
  for (char& c : std::span(error.text, error.text_bytes)) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  error.text[error.text_bytes] = 0;
  *out = error;
  return -static_cast<int>(error.code);
}

ErrorReply make_error(int code, const char* text) {
  ErrorReply error = {};
  error.code = static_cast<uint32_t>(code);
  error.text_bytes = static_cast<uint32_t>(std::min(strlen(text), sizeof error.text - 1));
  memcpy(error.text, text, error.text_bytes);
  return error;
}

}  // namespace farside::wire
