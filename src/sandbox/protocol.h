// What a server and the isolated process of a client (host.cc) exchange over a pair of sockets. The server sends the
// payload of a wire::Op::kCall; the host replies with a HostReply and its bytes. The first reply, without a request,
// says whether the objects could be loaded. The server trusts nothing that it receives: foreign code may have sent it.
#pragma once
#include <cstdint>

#include "wire/protocol.h"

namespace farside::sandbox {

// Descriptors of the host. Objects follow.
inline constexpr int kSocketFd = 3, kReadOnlyFd = 4, kWritableFd = 5, kFirstObjectFd = 6;

// Addresses that ranges of earlier calls may take in the host, beside those of the call.
inline constexpr uint64_t kParkedAddresses = uint64_t{16} << 30;

struct HostReply {
  int32_t status;  // 0 or a negative errno value; then the bytes are a text
  uint32_t started;
  uint32_t bytes;  // at most wire::kMaxCallBytes
  uint32_t zero;
};
static_assert(sizeof(HostReply) == 16);

}  // namespace farside::sandbox
