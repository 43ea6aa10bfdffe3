// A channel over TCP that survives broken connections. When a connection breaks, or transfers nothing for
// RetryPolicy::attempt_timeout_ns, it is replaced by a new one, and the requests without a reply are sent again; the
// caller sees only a longer delay. The channel fails when no request completed for RetryPolicy::limit_ns, and at once
// when the server reports that the region does not exist any more or the connection is refused. A damaged message
// breaks its connection, too; several in sequence are a violation of the protocol, and the channel fails with -EBADMSG.
//
// Why no request is lost or executed out of order: reads, writes of the same bytes and discards may be executed twice,
// provided that no newer write of the same bytes is executed in between.
//   - A newer write of this channel is not: requests are sent again in their original order. Before it accepts the new
//     connection, the server excludes the requests in the buffers of the old one (server/regions/fence.h).
//   - A newer write of another channel is not: callers write the same bytes only after this write completed, and a
//     completed write is not repeated.
// Data from a pipe is kept in a staging buffer until the write is acknowledged.
#pragma once
#include <memory>

#include "transport/retry_policy.h"
#include "transport/stream.h"

namespace farside::transport {

// True for errors of connecting that may be temporary: the network is slow, interrupted, or loses many packets.
bool is_transient(int error);

// At random between the half and all of a pause: clients that lost a server at the same time do not all try at the same
// times.
uint64_t spread_pause(uint64_t pause_ns);

// As Dialer::open, repeated while errors are transient, for at most retry.limit_ns.
int dial_with_retry(const Dialer& dialer, RetryPolicy retry, Status* status, wire::HelloReply* reply = nullptr);

class ReconnectingChannel final : public Channel {
 public:
  static constexpr uint64_t kFirstPauseNs = 10'000'000;  // between attempts to connect; doubled after each

  // Connects and attaches; nullptr with the reason in *status. The dialer's mode is kAttach, and it outlives the
  // channel.
  static std::unique_ptr<ReconnectingChannel> open(const Dialer& dialer, RetryPolicy retry, Status* status);
  ~ReconnectingChannel() override;

  int submit_read(std::span<const ByteRange> ranges, Token* token) override;
  int submit_write(std::span<const ByteRange> ranges, int pipe, Token* token) override;
  int submit_discard(std::span<const ByteRange> ranges, Token* token) override;
  void gather(bool on) override;
  int poll(Token token) override;
  int wait(Token token, uint64_t timeout_ns) override;

 private:
  static constexpr int kInFlight = 1;
  enum class Kind : uint8_t { kRead, kWrite, kDiscard };

  // A request in flight. The low four bits of the token are its index in requests_.
  struct Request {
    Token token = 0;     // 0: free
    Token stream_token;  // of stream_; 0: to be sent again
    Kind kind;
    int result;  // kInFlight, 0 or -errno
    size_t count;
    std::byte* staging = nullptr;  // data from a pipe; kept for the requests that follow
    size_t staging_bytes = 0;
    ByteRange ranges[kMaxRanges];
  };

  ReconnectingChannel(const Dialer& dialer, RetryPolicy retry, uint64_t channel)
      : dialer_(&dialer), retry_(retry), channel_(channel) {}
  int connect(Status* status, uint64_t timeout_ns);
  int begin(Kind kind, std::span<const ByteRange> ranges, uint64_t max_bytes, Request** request);
  int stage(Request* request, int pipe);
  int submit(Request* request, Token* token);
  int send(Request* request);
  void handle_result(Request* request, int result);
  void handle_damage();
  uint64_t update_clock();
  void check_timeouts();
  void drop_connection();
  void reconnect();
  void end_given_up();
  void complete(Request* request, int result);
  void warn_of_silence(uint64_t ns);
  void give_up(int reason, uint64_t silence_ns, const char* refusal = nullptr);
  void fail(int error);
  Request* find(Token token);
  Request* free_request();

  const Dialer* dialer_;
  const RetryPolicy retry_;
  const uint64_t channel_;                 // identifies our sequence of connections to the server
  uint64_t generation_ = 0;                // of the connection
  std::unique_ptr<StreamChannel> stream_;  // null while disconnected
  // A connection that was given up, until another one is attached: relays pass its reset on as an end in good order,
  // and the server would free a region that has no other one.
  int given_up_fd_ = -1;
  Status refusal_;  // of the last attempt, by another host; the reason if there is no further one before the limit
  int error_ = 0;   // not 0: the channel has failed
  bool gathers_ = false;
  bool warned_ = false;  // of silence
  uint64_t sequence_ = 0;
  unsigned in_flight_ = 0;  // requests without a result
  unsigned damaged_ = 0;    // connections that broke by a damaged message, since the last intact reply

  // Times of now_ns(). The first two are moved forward by pauses in which the caller did not poll.
  uint64_t completed_ns_ = 0;    // last completion, or first submission after an idle time
  uint64_t transferred_ns_ = 0;  // last progress of the connection
  uint64_t transferred_ = 0;     // its bytes_transferred() then
  uint64_t checked_ns_ = 0;      // last poll

  uint64_t next_try_ns_ = 0, pause_ns_ = kFirstPauseNs;  // of connecting
  Request requests_[kMaxInFlight];
};

}  // namespace farside::transport
