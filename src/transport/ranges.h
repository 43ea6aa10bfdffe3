// Helpers shared by the channels: checking lists of ranges, the table of requests in flight, data from
// pipes. Async-signal-safe.
#pragma once
#include <sys/uio.h>

#include <cerrno>

#include "base/near.h"
#include "base/os.h"
#include "transport/transport.h"

namespace farside::transport {

// 0 and the total size; -EINVAL or -E2BIG for a list that violates the limits of transport.h.
inline int check_ranges(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) {
  if (ranges.empty() || ranges.size() > kMaxRanges) return -EINVAL;
  *total = 0;
  for (const ByteRange& s : ranges) {
    if (s.bytes == 0) return -EINVAL;
    *total += s.bytes;
  }
  return *total > max_bytes ? -E2BIG : 0;
}

inline constexpr uint64_t kNoByteLimit = ~uint64_t{0};

// Removes `bytes` from the front of a list, which has at least as many.
inline void advance(iovec** pieces, size_t bytes) {
  while (bytes > 0) {
    iovec& p = **pieces;
    size_t step = bytes < p.iov_len ? bytes : p.iov_len;
    p.iov_base = static_cast<std::byte*>(p.iov_base) + step;
    p.iov_len -= step;
    bytes -= step;
    if (p.iov_len == 0) ++*pieces;
  }
}

// Reads exactly `bytes` from a pipe into the pieces, whose total size this is. Modifies the pieces. -EPIPE: the pipe
// ended before.
inline int read_pipe(int pipe, iovec* pieces, int count, size_t bytes) {
  iovec* end = pieces + count;
  while (bytes > 0) {
    ssize_t n = os::readv(pipe, pieces, static_cast<int>(end - pieces));
    if (n == -EINTR) continue;
    if (n == 0) return -EPIPE;
    if (n < 0) return static_cast<int>(n);
    advance(&pieces, static_cast<size_t>(n));
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

// The request with this token; nullptr: none. A token modulo kMaxInFlight is its index in the table.
template <typename Request>
Request* find_request(Request (&requests)[kMaxInFlight], Token token) {
  Request& request = requests[token % kMaxInFlight];
  return token != 0 && request.token == token ? &request : nullptr;
}

// The free place with the lowest index, so that few of them ever allocate a staging buffer; nullptr: none.
template <typename Request>
Request* free_request(Request (&requests)[kMaxInFlight]) {
  for (Request& request : requests) {
    if (request.token == 0) return &request;
  }
  return nullptr;
}

// Reads exactly `bytes` from a pipe into a near buffer, which is replaced by a larger one where it is too small.
inline int fill_staging(int pipe, size_t bytes, std::byte** staging, size_t* staging_bytes) {
  if (*staging_bytes < bytes) {
    near_free(*staging, *staging_bytes);
    *staging = static_cast<std::byte*>(near_alloc(bytes));
    *staging_bytes = bytes;
  }
  iovec piece = {*staging, bytes};
  return read_pipe(pipe, &piece, 1, bytes);
}

// Reads the data of a write's ranges from a pipe into a staging buffer, and points the ranges to it.
inline int stage_pipe(int pipe, std::span<ByteRange> ranges, std::byte** staging, size_t* staging_bytes) {
  size_t bytes = 0;
  for (const ByteRange& s : ranges) bytes += s.bytes;
  if (int r = fill_staging(pipe, bytes, staging, staging_bytes); r < 0) return r;
  std::byte* at = *staging;
  for (ByteRange& s : ranges) {
    s.near = at;
    at += s.bytes;
  }
  return 0;
}

}  // namespace farside::transport
