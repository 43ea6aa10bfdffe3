// A channel over TCP that outlives its connections. When a connection breaks, or nothing comes for a while, another one
// takes its place and what was not answered is asked again; the caller only sees that it takes longer. After `limit`
// without an answer to any request, or at once when the server says that the region is gone or its machine that nobody
// listens, the channel is dead.
//
// Why nothing is lost or doubled: reads, writes of the same bytes and discards may be carried out twice, as long as no
// newer write of the same place comes in between. One of this channel cannot: requests are repeated in their order, and
// the server, before it greets the new connection, shuts out what the old one has still in its buffers
// (server/fence.h). One of another channel cannot, either: callers write a place again only after they saw this write
// complete, and a write that completed is not repeated. What came from a pipe is kept until it is acknowledged.
#pragma once
#include <atomic>
#include <memory>

#include "transport/retry_policy.h"
#include "transport/stream.h"

namespace farside::transport {

// True for errors of dialling that may pass: the network is slow, cut, or loses much.
bool is_transient(int error);

// Opens a connection; tries again for as long as errors may pass and there is patience. As Dialer::open.
int dial_with_retry(const Dialer& dialer, RetryPolicy patience, Status* status, wire::HelloReply* reply = nullptr);

class ReconnectingChannel final : public Channel {
 public:
  static constexpr uint64_t kFirstPauseNs = 10'000'000;  // between attempts to dial; each is twice as long

  // Dials and greets; nullptr with the reason in *status. The dialer greets with kAttach; it and *told outlive the
  // channel. The first channel of a server whose greeting is refused says so, and sets *told.
  static std::unique_ptr<ReconnectingChannel> open(const Dialer& dialer, RetryPolicy patience, std::atomic<bool>* told,
                                                   Status* status);
  ~ReconnectingChannel() override;

  int submit_read(std::span<const Segment> segments, Token* token) override;
  int submit_write(std::span<const Segment> segments, int pipe, Token* token) override;
  int submit_discard(std::span<const Segment> segments, Token* token) override;
  void gather(bool on) override;
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;

 private:
  static constexpr int kInFlight = 1;
  enum class Kind : uint8_t { kRead, kWrite, kDiscard };

  // A request under way. The token's low four bits are the slot's index.
  struct Slot {
    Token token = 0;  // 0: free
    Token asked;      // of the connection's channel; 0: to be asked again
    Kind kind;
    int result;  // kInFlight, 0 or -errno
    size_t count;
    std::byte* staging = nullptr;  // what came from a pipe; as large as the largest one of the slot
    size_t staging_bytes = 0;
    Segment segments[kMaxSegments];
  };

  ReconnectingChannel(const Dialer& dialer, RetryPolicy patience, std::atomic<bool>* told, uint64_t channel)
      : dialer_(&dialer), patience_(patience), told_(told), channel_(channel) {}
  int connect(Status* status, uint64_t timeout_ns);
  int begin(Kind kind, std::span<const Segment> segments, uint64_t max_bytes, Slot** slot);
  int stage(Slot* slot, int pipe);
  int submit(Slot* slot, Token* token);
  int ask(Slot* slot);
  void take(Slot* slot, int result);
  uint64_t look();
  void look_for_silence();
  void give_connection_up();
  void reconnect();
  void finish(Slot* slot, int result);
  void end(int error);
  Slot* find(Token token);
  Slot* free_slot();

  const Dialer* dialer_;
  const RetryPolicy patience_;
  std::atomic<bool>* const told_;
  const uint64_t channel_;                 // names the sequence of our connections to the server
  uint64_t generation_ = 0;                // of the connection
  std::unique_ptr<StreamChannel> stream_;  // null while there is none
  int ended_ = 0;                          // the error that ended the channel
  bool gathers_ = false;
  uint64_t sequence_ = 0;
  unsigned in_flight_ = 0;  // requests without a result

  uint64_t answered_ns_ = 0;  // when a request was last answered, or the first one after a pause began
  uint64_t moved_ns_ = 0;     // when something was last sent or received
  uint64_t moved_ = 0;
  uint64_t looked_ns_ = 0;                               // when the caller last asked after something
  uint64_t next_try_ns_ = 0, pause_ns_ = kFirstPauseNs;  // of dialling
  Slot slots_[kMaxInFlight];
};

}  // namespace farside::transport
