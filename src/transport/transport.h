// The one interface between the pager and far memory. A Channel belongs to one thread at a time: it takes lists of
// (far address, length, near buffer), submits them without waiting, and is polled for completion. Every transport
// passes the conformance suite in tests/conformance.
//
// Rules that all implementations keep, because the pager calls them inside a SIGBUS handler:
//   - async-signal-safe: system calls only through base/os.h, memory only from base/near.h, no libc locks, no
//     exceptions, no logging on success paths;
//   - buffers given to a channel are near memory and stay valid until their token completes;
//   - results are 0 or -errno; a channel that lost its peer fails every later call with -ECONNRESET and never hangs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/near.h"

namespace farside::transport {

// A piece of far memory and the near buffer that it is read into or written from.
struct Segment {
  uint64_t far;    // byte offset in the client's region
  uint32_t bytes;  // 1 .. kMaxRequestBytes
  void* near;      // ignored where the data comes from a pipe, and for discard
};

// A request that was submitted and not yet seen complete. Never 0.
using Token = uint64_t;

inline constexpr size_t kMaxSegments = 256;              // in one request
inline constexpr size_t kMaxRequestBytes = 1024 * 1024;  // in one request, all segments together (not for discard)
inline constexpr size_t kMaxInFlight = 16;               // requests of one channel; one more is -EAGAIN

// Far memory that is mapped into this process.
struct Mapping {
  const std::byte* base = nullptr;  // where the region's byte 0 is mapped, and all others after it; nullptr: nowhere
  bool immediate = false;           // bytes may be read there at any time; else only once a read of them has completed
                                    // (such a read needs no buffers: `near` may be null)
};

class Channel : public NearObject {
 public:
  virtual ~Channel() = default;

  // Starts to read the segments into their buffers.
  virtual int submit_read(std::span<const Segment> segments, Token* token) = 0;

  // Starts to write the segments. No other write or discard that is under way, here or on another channel of the
  // region, may touch the same pages. With pipe >= 0 the bytes are taken from that pipe, in order, exactly as many as
  // the segments hold together, before the call returns (the pipe is free for the next batch); else from the buffers.
  // -EAGAIN and errors of the list leave the pipe as it was; after other errors it may have lost part of its content.
  virtual int submit_write(std::span<const Segment> segments, int pipe, Token* token) = 0;

  // Starts to forget the segments: they read as zeros afterwards and their memory goes back to the server. Here a
  // segment's bytes may be anything that fits its field.
  virtual int submit_discard(std::span<const Segment> segments, Token* token) = 0;

  // While on, requests may be held back until a few are together, or until poll or wait is called for any: one system
  // call sends them all. For callers that poll within microseconds (the fibers of a worker).
  virtual void gather(bool on) { (void)on; }

  // 1: complete (the token is spent). 0: still under way. Negative: failed with -errno (the token is spent).
  virtual int poll(Token token) = 0;

  // How far memory can be read without copying it through the channel. Constant for a channel. Takes no lock.
  virtual Mapping mapping() const { return {}; }

  // Polls for a bounded time, then sleeps until the request completes, fails, or timeout_ns has passed (-ETIMEDOUT,
  // and the token is still under way). Returns 0 or -errno.
  virtual int wait(Token token, uint64_t timeout_ns) = 0;
};

}  // namespace farside::transport
