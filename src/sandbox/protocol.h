// What a server and the isolated process of a client (call_executor.h) share. The server trusts nothing of it: foreign
// code may have written it.
//
//   control     a socket pair. First the host says whether the objects could be loaded (HostReply). Then each side
//               gives the connection to the other by a Handover, with what it has received and not used of it.
//   connection  the client's connection itself: the host reads calls (wire::Op::kCall) and replies without the server.
//               It gives back what is no valid call, or a call while the region has snapshots. With TLS a socket pair:
//               each call is a Handover, and the reply is a frame that the server checks.
//   state       shared memory: what the host does, for limits, and for the reply if the process ends.
#pragma once
#include <atomic>
#include <cstdint>

#include "wire/protocol.h"

namespace farside::sandbox {

// Descriptors of the host. Objects follow.
inline constexpr int kControlFd = 3, kReadOnlyFd = 4, kWritableFd = 5, kConnectionFd = 6, kStateFd = 7,
                     kFirstObjectFd = 8;

// Addresses that ranges of earlier calls may take in the host, beside those of the call.
inline constexpr uint64_t kParkedAddresses = uint64_t{16} << 30;

struct HostReply {
  int32_t status;  // 0 or a negative errno value; then a text of as many bytes follows
  uint32_t bytes;
};
static_assert(sizeof(HostReply) == 8);

struct Handover {
  uint64_t bytes;  // that follow; at most kMaxHandover
};
inline constexpr uint64_t kMaxHandover = 2 * (sizeof(wire::FrameHeader) + wire::kMaxPayload);

enum class HostPhase : uint32_t { kWaits, kExecutes, kReplies };
struct HostState {
  std::atomic<HostPhase> phase;
  std::atomic<uint64_t> request;  // of the call that is executed
  std::atomic<uint64_t> calls;    // that have begun
};

}  // namespace farside::sandbox
