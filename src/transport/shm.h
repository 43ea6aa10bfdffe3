// One-sided access to a region whose memory file is mapped in this process. The server is not involved, so the data
// stays accessible when the server has failed. While the region has snapshots, writes and discards are sent to the
// server over a stream connection instead, because the server must first save the old content for the snapshots. For
// experiments, a latency and a bandwidth limit can be added, which simulate slower links.
#pragma once
#include <sys/uio.h>
#include <memory>

#include <atomic>

#include "transport/dial.h"
#include "transport/stream.h"
#include "transport/transport.h"

namespace farside::transport {

// The mapped region, shared by all channels of a process. Owns the mapping, not the descriptor.
class ShmRegion : public NearObject {
 public:
  struct Link {
    double latency_us = 0;
    double gbps = 0;  // Gbit/s; 0: unlimited
  };

  // Maps the file, whose size must be region_bytes and a trailer page. nullptr with the reason in *status.
  static std::unique_ptr<ShmRegion> map(int memory_fd, uint64_t region_bytes, Link link, Status* status);
  ~ShmRegion();

  std::byte* at(uint64_t offset) const { return base_ + offset; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  bool has_overlays() const;
  bool is_delayed() const { return latency_ticks_ > 0 || ticks_per_byte_ > 0; }

  // The tick at which a transfer that starts now is complete; 0: at once. All channels share the link. Thread-safe.
  uint64_t completion_tick(uint64_t transfer_bytes);

 private:
  ShmRegion(std::byte* base, uint64_t bytes, int fd, Link link);

  std::byte* base_;
  uint64_t bytes_;
  int fd_;
  uint64_t latency_ticks_;
  double ticks_per_byte_;
  std::atomic<uint64_t> link_free_at_{0};
};

class ShmChannel final : public Channel {
 public:
  // `dialer` opens the stream connection when the first snapshot requires it. Both outlive the channel.
  ShmChannel(ShmRegion* region, const Dialer* dialer) : region_(region), dialer_(dialer) {}

  int submit_read(std::span<const ByteRange> ranges, Token* token) override;
  int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) override;
  int submit_discard(std::span<const ByteRange> ranges, Token* token) override;
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;
  Mapping mapping() const override { return {region_->at(0), !region_->is_delayed()}; }

 private:
  struct Request {
    Token token = 0;         // 0: free. The low four bits are its index in requests_
    Token stream_token = 0;  // not 0: the request is in flight on stream_
    uint64_t ready_tick = 0;
  };

  int check(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) const;
  int write_from_pipe(std::span<const ByteRange> ranges, int pipe, uint64_t bytes);
  int finish_submit(Request* request, uint64_t bytes, Token* token);
  int finish_submit_on_stream(Request* request, int submitted, Token stream_token, Token* token);
  static uint64_t remaining_ns(const Request& request);  // of its simulated latency; 0: none
  bool stream_ready();
  Request* free_request();
  Request* find(Token token);

  ShmRegion* region_;
  const Dialer* dialer_;
  std::unique_ptr<StreamChannel> stream_;
  uint64_t sequence_ = 0;
  Request requests_[kMaxInFlight];
  iovec pieces_[kMaxRanges];
};

}  // namespace farside::transport
