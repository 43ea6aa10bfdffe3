// Well-formed frames, and random mutations of them.
#pragma once
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "wire/auth.h"
#include "wire/codec.h"
#include "wire/crc32c.h"

namespace farside::testing {

using Frame = std::vector<std::byte>;

// Sets the checksum.
inline void seal(Frame* frame) {
  wire::FrameHeader header;
  memcpy(&header, frame->data(), sizeof header);
  header.crc = wire::crc32c(wire::header_crc(header), frame->data() + sizeof header, frame->size() - sizeof header);
  memcpy(frame->data(), &header, sizeof header);
}

inline Frame frame(wire::Op op, uint64_t request, wire::Bytes payload, uint16_t flags = 0) {
  auto header = wire::make_header(op, flags, request, static_cast<uint32_t>(payload.size()));
  Frame out(sizeof header + payload.size());
  memcpy(out.data(), &header, sizeof header);
  if (!payload.empty()) memcpy(out.data() + sizeof header, payload.data(), payload.size());
  seal(&out);
  return out;
}

template <typename T>
Frame frame_of(wire::Op op, uint64_t request, const T& payload, uint16_t flags = 0) {
  return frame(op, request, wire::bytes_of(payload), flags);
}

inline Frame list_frame(wire::Op op, uint64_t request, std::vector<wire::ByteRange> ranges, size_t data_bytes = 0) {
  wire::ListHeader head = {static_cast<uint32_t>(ranges.size()), 0};
  Frame payload(sizeof head + ranges.size() * sizeof(wire::ByteRange) + data_bytes);
  memcpy(payload.data(), &head, sizeof head);
  memcpy(payload.data() + sizeof head, ranges.data(), ranges.size() * sizeof(wire::ByteRange));
  return frame(op, request, payload);
}

inline wire::HelloRequest hello_of(wire::HelloMode mode) {
  wire::HelloRequest hello = {};
  hello.mode = mode;
  return hello;
}

// A greeting that makes a region.
inline Frame hello_frame(uint64_t region_bytes) {
  wire::HelloRequest hello = hello_of(wire::HelloMode::kCreate);
  hello.region_bytes = region_bytes;
  return frame_of(wire::Op::kHello, 1, hello);
}

// Changes a few bytes, or truncates or extends the frame; in half of the cases the checksum is corrected.
inline void mutate(Frame* f, std::mt19937_64* random) {
  auto next = [&](uint64_t bound) { return (*random)() % bound; };
  switch (next(4)) {
    case 0:
      f->resize(next(f->size() + 1));
      break;
    case 1:
      f->resize(f->size() + next(100));
      break;
    default:
      for (uint64_t i = 1 + next(4); i > 0; i--) (*f)[next(f->size())] = static_cast<std::byte>((*random)());
  }
  if (f->size() >= sizeof(wire::FrameHeader) && next(2)) seal(f);
}

}  // namespace farside::testing
