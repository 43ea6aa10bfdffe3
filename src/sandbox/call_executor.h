// Executes the calls that arrive on the client's connection, in the isolated process: gets the connection from the
// server, and gives it back with what it does not execute (protocol.h). Used by one thread.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/core_sharing.h"
#include "sandbox/loaded_objects.h"
#include "sandbox/mapped_ranges.h"
#include "sandbox/protocol.h"
#include "wire/codec.h"

namespace farside::sandbox {

class CallExecutor {
 public:
  // region: its address. is_direct: the connection is the client's, and not a relay of the server.
  CallExecutor(uint64_t region, bool is_direct) : region_(region), is_direct_(is_direct) {}

  // Maps what is shared with the server. Returns the addresses that it reserved for the region.
  uint64_t map_shared();
  void load(int objects) { objects_.load(objects); }
  [[noreturn]] void serve();

 private:
  static constexpr size_t kHeader = sizeof(wire::FrameHeader);

  // A reply as it is sent.
  struct Reply {
    wire::FrameHeader header;
    wire::CallReply head;
    char result[wire::kMaxCallBytes];
  };
  static_assert(offsetof(Reply, result) == kHeader + sizeof(wire::CallReply));

  // What was received and not used yet lies from `begin` to `end`.
  struct Input {
    size_t begin, end;
    char bytes[kMaxHandover];
  };

  void reply(int status, bool started, size_t bytes);
  void reply_error(int status, const char* text, const char* more = "");
  void execute(const wire::CallPayload& call);
  void receive_some(size_t wanted);
  ssize_t next_call(wire::FrameHeader* header, wire::CallPayload* call) const;
  void execute_calls();

  const uint64_t region_;
  const bool is_direct_;
  uint64_t region_bytes_ = 0;  // without its trailer
  const wire::RegionTrailer* trailer_ = nullptr;
  HostState* state_ = nullptr;
  CoreSharing core_{1000};
  LoadedObjects objects_;
  MappedRanges ranges_;
  Reply reply_;
  Input input_;
  alignas(16) char arguments_[wire::kMaxCallBytes];
};

}  // namespace farside::sandbox
