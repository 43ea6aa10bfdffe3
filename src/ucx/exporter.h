// The server's side of one-sided access: a process that has nothing but the memory of one region, which clients read
// and write by UCX (server/regions/share.h starts it). The server asks it to share slabs of the region. What is not
// shared is not mapped, so an access outside ends this process.
#pragma once
#include <cstdint>

#include "wire/protocol.h"

namespace farside::ucx {

// From the server, over kControlFd.
struct ExportRequest {
  uint64_t offset;  // of a slab
  uint64_t bytes;   // 0: it is no longer shared, and there is no reply
};
// The reply to each request to share a slab, in order.
struct ExportReply {
  uint64_t offset;
  uint64_t failed;  // 1: it cannot be shared
  wire::ShareReply share;
};

// Shares slabs of the file kGivenFd until kControlFd is closed. The exit status of the process.
int run_exporter(const char* transports);

}  // namespace farside::ucx
