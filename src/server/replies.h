// The replies to the requests of one connection: frames at the end of its output. Used by one thread at a time.
#pragma once
#include <cstdint>

#include "base/buffer.h"
#include "server/access/peer.h"
#include "server/counters.h"
#include "wire/codec.h"

namespace farside::server {

// What follows the execution of a request, or of a piece of it.
enum class Outcome {
  kDone,        // the next request; a reply is in the output, if the request has one
  kUnfinished,  // further pieces of the request (regions/piece.h)
  kToHost,      // the isolated process of the client executes it
  kClose,       // the end of the connection, after the error reply that is in the output
};

class Replies {
 public:
  Replies(Buffer* output, const Peer* peer, Counters* counters) : output_(output), peer_(peer), counters_(counters) {}

  // The request that the next replies answer.
  void begin(const wire::FrameHeader& request) { request_ = request; }
  const wire::FrameHeader& request() const { return request_; }
  // Of the connection, for the log.
  void set_region(uint64_t id) { region_ = id; }

  Outcome reply(wire::Bytes payload);
  Outcome refuse(int code, const char* text);
  Outcome refuse(int code);  // with the usual text of the code
  Outcome close(int code, const char* text);

  // A reply that is written in place: space for a payload of at most `bytes`, then what it became.
  std::byte* reserve(size_t bytes);
  Outcome commit(size_t bytes) { return commit(bytes, request_.request); }
  Outcome commit(size_t bytes, uint64_t request);
  // Of a reply, without its checksum.
  wire::FrameHeader header(size_t payload_bytes) const;

  // Logs that the connection is closed. At most one line a second, so that peers cannot flood the log.
  void log_bad_peer(wire::Op request, const char* what) const;

 private:
  void append(wire::Op op, wire::Bytes payload);

  Buffer* const output_;
  const Peer* const peer_;
  Counters* const counters_;
  uint64_t region_ = 0;
  wire::FrameHeader request_ = {};
};

}  // namespace farside::server
