// The interface between the pager and far memory. A Channel belongs to one thread at a time. It takes lists of (far
// address, length, near buffer), submits them without waiting, and is polled for completion. Every transport passes the
// conformance suite in tests/conformance.
//
// Rules for all implementations, because the pager calls them in a SIGBUS handler:
//   - async-signal-safe: system calls only through base/os.h, memory only from base/near.h, no locks of libc, no
//     exceptions, no logging on success;
//   - buffers are near memory and stay valid until their token completes;
//   - results are 0 or -errno; after the loss of its peer a channel fails every call with -ECONNRESET and never hangs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/near.h"

namespace farside::transport {

// A range of far memory, and the near buffer into which it is read or from which it is written.
struct ByteRange {
  uint64_t far;    // byte offset in the client's region
  uint32_t bytes;  // 1 .. kMaxRequestBytes
  void* near;      // ignored for writes from a pipe and for discards
};

// Identifies a request from its submission until poll or wait has returned its result. Never 0.
using Token = uint64_t;

inline constexpr size_t kMaxRanges = 256;                // in one request
inline constexpr size_t kMaxRequestBytes = 1024 * 1024;  // in one request, all ranges together (not for discard)
inline constexpr size_t kMaxInFlight = 16;               // requests of one channel; a further one fails with -EAGAIN

// Far memory that is mapped into this process.
struct Mapping {
  const std::byte* base = nullptr;  // address of the region's byte 0; the region is contiguous. nullptr: not mapped
  bool immediate = false;  // bytes may be read there at any time; else only after a read of them has completed,
                           // for which `near` may be null
};

class Channel : public NearObject {
 public:
  virtual ~Channel() = default;

  // Starts to read the ranges into their buffers. 0, or -errno, and then there is no token.
  virtual int submit_read(std::span<const ByteRange> ranges, Token* token) = 0;

  // Starts to write the ranges. No other write or discard in flight, on this or another channel of the region, may
  // concern the same pages. With pipe >= 0 the data is read from that pipe, in order, exactly the total size of the
  // ranges, before the call returns (the pipe can then be used for the next batch); else from the buffers. -EAGAIN
  // and errors of the list leave the pipe unchanged; after other errors it may have lost part of its content.
  virtual int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) = 0;

  // Starts to discard the ranges: they read as zeros afterwards, and the server frees their memory. The size of a
  // range is not limited to kMaxRequestBytes.
  virtual int submit_discard(std::span<const ByteRange> ranges, Token* token) = 0;

  // While on, requests may be delayed until there are several, or until poll or wait is called for any of them; one
  // system call then sends them all. For callers that poll within microseconds (the fibers of a worker).
  virtual void gather(bool on) { (void)on; }

  // 1: complete. 0: in flight. Negative: failed with -errno. Except after 0, the token is invalid afterwards.
  virtual int poll(Token token) = 0;

  // How far memory can be read without copying it through the channel. Constant for a channel, and lock-free.
  virtual Mapping mapping() const { return {}; }

  // Whether reads proceed while no thread polls for them.
  virtual bool proceeds_alone() const { return true; }

  // Polls for a bounded time, then sleeps until the request completes or fails, or timeout_ns has passed (-ETIMEDOUT:
  // the request is still in flight). Returns 0 or -errno.
  virtual int wait(Token token, uint64_t timeout_ns) = 0;
};

}  // namespace farside::transport
