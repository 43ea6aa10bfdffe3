// Calls all checking and decoding functions of the codec with arbitrary bytes, and verifies what they accept. Used by
// the fuzzer and the smoke test.
#pragma once
#include <cerrno>
#include <cstdlib>

#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::testing {

// The messages of calls. As decode_one.
template <typename Require>
int decode_calls(wire::Bytes input, Require require) {
  int accepted = 0;
  wire::CallOpen open;
  wire::CallCodeRequest code;
  wire::CallPayload call;
  wire::CallReply reply;
  if (wire::decode_call_open(input, &open) == 0) {
    accepted++;
    require(open.base % 4096 == 0 && open.process < wire::kMaxCallProcesses);
  }
  if (wire::decode_call_code(input, &code) == 0) {
    accepted++;
    require(code.head.offset <= code.head.bytes && code.part.size() <= code.head.bytes - code.head.offset);
    wire::crc32c(0, code.part.data(), code.part.size());  // all of it must be readable
  }
  for (uint64_t region : {uint64_t{4096}, uint64_t{1} << 30, wire::kMaxRegionBytes}) {
    if (wire::decode_call(input, region, &call) != 0) continue;
    accepted++;
    require(call.head.range_count <= wire::kMaxCallRanges && call.arguments.size() == call.head.argument_bytes);
    uint64_t end = 0;
    for (uint32_t i = 0; i < call.head.range_count; i++) {
      wire::CallRange r = wire::call_range(call.ranges, i);
      require(r.bytes > 0 && r.offset >= end && r.offset < region && r.bytes <= region - r.offset && r.written <= 1);
      end = r.offset + r.bytes;
    }
    wire::crc32c(0, call.arguments.data(), call.arguments.size());
  }
  if (wire::decode_call_reply(input, &reply) == 0) {
    accepted++;
    require(reply.status <= 0 && reply.status > -4096 && reply.result_bytes == input.size() - sizeof reply);
  }
  return accepted;
}

// Of a controller and its servers.
template <typename Require>
int decode_pool(wire::Bytes input, Require require) {
  int accepted = 0;
  wire::ServerReport report;
  if (wire::decode_report(input, &report) == 0) {
    accepted++;
    require(strnlen(report.address, sizeof report.address) < sizeof report.address);
  }
  wire::CordonRequest cordon;
  if (wire::decode_cordon(input, &cordon) == 0) {
    accepted++;
    require(strnlen(cordon.address, sizeof cordon.address) < sizeof cordon.address);
  }
  wire::CopiesReport copies;
  if (wire::decode_copies(input, &copies) == 0) {
    accepted++;
    require(copies.client != 0);
  }
  wire::RegisterReply registered;
  accepted += wire::decode_register_reply(input, &registered) == 0;
  static wire::ServersReply servers;  // large
  if (wire::decode_servers(input, &servers) == 0) {
    accepted++;
    require(servers.count <= wire::kMaxPoolServers);
  }
  return accepted;
}

// Aborts when accepted input violates a guarantee of the codec. Returns the number of functions that accepted the
// input.
inline int decode_one(wire::Bytes input) {
  auto require = [](bool condition) {
    if (!condition) abort();
  };
  int accepted = 0;
  wire::FrameHeader header;
  if (input.size() >= sizeof header) {
    memcpy(&header, input.data(), sizeof header);
    accepted += wire::check_request_header(header) == 0;
    accepted += wire::check_reply_header(header) == 0;
    wire::Bytes rest = input.subspan(sizeof header);
    if (accepted > 0 && header.payload_bytes <= rest.size()) input = rest.subspan(0, header.payload_bytes);
  }
  for (uint64_t region : {uint64_t{4096}, uint64_t{1} << 30, wire::kMaxRegionBytes}) {
    for (wire::Op op : {wire::Op::kRead, wire::Op::kWrite, wire::Op::kDiscard}) {
      wire::ListRequest list;
      if (wire::decode_list(op, input, region, &list) != 0) continue;
      accepted++;
      uint64_t total = 0;
      require(list.ranges.size() >= 1 && list.ranges.size() <= wire::kMaxRanges);
      for (uint32_t i = 0; i < list.ranges.size(); i++) {
        wire::ByteRange e = list.ranges[i];
        require(e.bytes > 0 && e.offset < region && e.bytes <= region - e.offset);
        total += e.bytes;
      }
      require(total == list.total_bytes);
      require(op == wire::Op::kDiscard || total <= wire::kMaxDataBytes);
      require(list.data.size() == (op == wire::Op::kWrite ? total : 0));
      wire::crc32c(0, list.data.data(), list.data.size());  // all of it must be readable
    }
  }
  wire::HelloRequest hello;
  wire::HelloReply reply;
  wire::Proof proof;
  wire::ReserveRequest reserve;
  wire::ErrorReply error;
  accepted += wire::decode_hello(input, &hello) == 0;
  accepted += wire::decode_hello_reply(input, &reply) == 0;
  accepted += wire::decode_proof(input, &proof) == 0;
  accepted += wire::decode_reserve(input, &reserve) == 0;
  int code = wire::decode_error(input, &error);
  require(code < 0 && code > -4096);
  if (input.size() == sizeof error && code != -EBADMSG) require(strlen(error.text) == error.text_bytes);
  return accepted + decode_pool(input, require) + decode_calls(input, require);
}

}  // namespace farside::testing
