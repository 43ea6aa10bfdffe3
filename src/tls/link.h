// One connection of a relay: a local socket, and TLS over TCP to a server. advance() goes as far as it can without
// waiting; it is called after every event of one of the sockets. Used by one thread, which blocks SIGPIPE.
// States: request (the local side names the server) -> connecting -> handshake -> open -> over.
#pragma once
#include <array>
#include <cstddef>
#include <memory>

#include "tls/relay_settings.h"
#include "tls/tls_socket.h"
#include "transport/relay_protocol.h"

namespace farside::tls {

class Link {
 public:
  // Takes ownership of the local socket. `now` is the time of now_ns().
  Link(int local, const RelaySettings& settings, uint64_t now) : local_(local), settings_(settings), since_(now) {}
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int local() const { return local_; }
  int remote() const { return remote_; }  // -1 before the local side has named the server
  bool is_over() const { return state_ == State::kOver; }

  // True: there is more to do, without another event; others are served in between.
  bool advance();
  // The local side has closed its socket: what it has sent is passed on, and nothing is sent to it any more.
  void local_closed() { local_closed_ = true; }
  // Ends a connection that has not been opened in time.
  void expire(uint64_t now);
  bool is_open() const { return state_ >= State::kOpen; }
  // There are bytes for which the local socket had no room.
  bool is_blocked() const { return !in_.empty(); }

  bool watches_room = false;  // for the relay: EPOLLOUT is registered for the local socket

 private:
  enum class State { kRequest, kConnecting, kHandshake, kOpen, kOver };
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  static constexpr size_t kRecordBytes = 16 * 1024;  // the most that TLS sends as one record
  static constexpr int kRounds = 16;

  // Bytes on their way in one direction.
  struct Pipe {
    std::array<std::byte, sizeof(transport::RelayReply) + kRecordBytes> bytes;
    size_t begin = 0, end = 0;
    bool ended = false;   // the sender has ended its data
    bool closed = false;  // and the receiver knows
    bool empty() const { return begin == end; }
  };

  void receive_request();
  void finish_connecting();
  void shake_hands();
  bool move_out();
  void stop_sending();
  bool move_in();
  bool fill_in();
  void fail(int error, const char* text);
  void close() { state_ = State::kOver; }

  const int local_;
  int remote_ = -1;
  const RelaySettings& settings_;
  const uint64_t since_;
  State state_ = State::kRequest;
  bool local_closed_ = false;
  bool answered_ = false;  // the RelayReply is in in_, or was sent
  transport::RelayRequest request_ = {};
  size_t request_bytes_ = 0;  // received
  std::unique_ptr<TlsSocket> stream_;
  Pipe out_, in_;  // from and to the local socket
};

}  // namespace farside::tls
