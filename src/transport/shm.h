// One-sided access to a region whose memory file is mapped in this process. The server is not involved, so the data
// stays accessible when the server has failed. While the region has snapshots, writes and discards are sent to the
// server over a stream connection instead, because the server must first save the old content for the snapshots. Where
// the server compresses cold pages, a page may be in the region's second file (packed/packed_pages.h). For experiments,
// a latency and a bandwidth limit can be added, which simulate slower links.
#pragma once
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "packed/packed_pages.h"
#include "transport/dial.h"
#include "transport/stream.h"
#include "transport/transport.h"

namespace farside::transport {

// The mapped region, shared by all channels of a process. Owns the mapping, not the descriptor.
class ShmRegion final : public NearObject, public packed::RawPages {
 public:
  struct Link {
    double latency_us = 0;
    double gbps = 0;  // Gbit/s; 0: unlimited
  };

  // The descriptors of a region, which outlive its mapping.
  struct Files {
    int memory;           // its size is region_bytes and a trailer page
    int packed = -1;      // the second file; -1: pages are not compressed
    int connection = -1;  // to the server: is broken when the server has ended
  };

  // Maps the files. nullptr with the reason in *status.
  static std::unique_ptr<ShmRegion> map(const Files& files, uint64_t region_bytes, Link link, Status* status);
  ~ShmRegion();

  // Access to the content. Results are 0 or -errno.
  bool is_packed() const { return packed_ != nullptr; }
  int read(const ByteRange& range, packed::Unpacker& unpacker);
  int begin_write(const ByteRange& range, packed::Unpacker& unpacker);
  void end_write(const ByteRange& range);
  int discard(const ByteRange& range, packed::Unpacker& unpacker);

  std::byte* at(uint64_t offset) const { return base_ + offset; }
  uint64_t bytes() const { return bytes_; }
  bool has_overlays() const;
  bool is_delayed() const { return latency_ticks_ > 0 || ticks_per_byte_ > 0; }
  // Pages that may be compressed at any time cannot be read in place.
  Mapping mapping() const { return is_packed() ? Mapping() : Mapping{base_, !is_delayed()}; }

  // The tick at which a transfer that starts now is complete; 0: at once. All channels share the link. Thread-safe.
  uint64_t completion_tick(uint64_t transfer_bytes);

 private:
  ShmRegion(std::byte* base, std::byte* packed, uint64_t bytes, const Files& files, Link link);
  int read(uint64_t offset, std::byte* to, size_t bytes) override;
  int write(uint64_t offset, const std::byte* from, size_t bytes) override;
  int punch(uint64_t offset, uint64_t bytes) override;
  int read_overflow(uint64_t, std::byte*) override { return -EIO; }
  bool may_be_freeing() override;

  std::byte* base_;
  std::byte* packed_;  // the mapping of the second file, or nullptr
  packed::PackedPages pages_;
  uint64_t bytes_;
  Files files_;
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
  Mapping mapping() const override { return region_->mapping(); }
  bool proceeds_alone() const override { return region_->is_delayed(); }

 private:
  struct Request {
    Request() = default;
    ~Request() { near_free(ranges, room * sizeof(ByteRange)); }
    Token token = 0;         // 0: free. The low four bits are its index in requests_
    Token stream_token = 0;  // not 0: the request is in flight on stream_
    uint64_t ready_tick = 0;
    ByteRange* ranges = nullptr;  // of a read that is executed by the thread that polls for it
    size_t count = 0, room = 0;   // of these; count 0: it was executed
  };

  int check(std::span<const ByteRange> ranges, uint64_t max_bytes, uint64_t* total) const;
  int write_in_place(std::span<const ByteRange> ranges, int pipe, uint64_t bytes);
  int write_from_pipe(std::span<const ByteRange> ranges, int pipe, uint64_t bytes);
  void defer_read(Request* request, std::span<const ByteRange> ranges);
  int execute_read(Request* request);
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
  packed::Unpacker unpacker_;
};

}  // namespace farside::transport
