// One connection of a client: receives frames, executes the requests in order, and sends the replies. It blocks only
// where it calls functions, in a thread of its own. All input is checked by the codec; a violation of the protocol ends
// the connection with an error reply. Memory is bounded: the greeting, then one frame of input, and no request is read
// while kMaxOutput bytes of replies are not sent yet. A request that takes several pieces (regions/piece.h) stays in
// the input meanwhile, and its thread calls go_on(). Used by one thread at a time.
//
// States: greeting (the handshake of TLS, then only kHello is accepted) -> challenged (only kProve) -> open -> closing
// (an error reply is being sent). When the socket is over, so is the connection.
#pragma once
#include <optional>
#include <string>

#include "base/buffer.h"
#include "server/access/peer.h"
#include "server/authentication.h"
#include "server/client_socket.h"
#include "server/handlers.h"
#include "server/replies.h"
#include "server/server_state.h"
#include "wire/codec.h"

namespace farside::server {

class Connection {
 public:
  // tls: null for a plain connection.
  Connection(int fd, bool is_unix, const tls::Credentials* tls, uint64_t now, ServerState* server);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return socket_.fd(); }
  bool is_over() const { return socket_.is_over(); }
  bool is_open() const { return state_ == State::kOpen && !is_over(); }
  const Peer& peer() const { return peer_; }
  uint64_t age_ns(uint64_t now) const { return now - since_; }
  bool wants_input() const;
  bool wants_output() const { return socket_.wants_output(); }
  // The time for the greeting and its proof, or for sending the error reply, has passed.
  bool is_expired(uint64_t now) const { return !is_open() && now - since_ > kTimeoutNs; }

  // Receives what arrived, executes the complete requests, and sends what the socket accepts. True: something was
  // received, or the connection is over.
  bool receive();
  void send();
  // A request has further pieces, or this turn of the connection was long enough: others are served, then go_on().
  bool is_unfinished() const { return is_unfinished_ && !is_over(); }
  void go_on();
  void trim();
  // The client calls functions: the connection needs a thread of its own, which begins with begin_calls().
  bool wants_thread() const { return wants_thread_; }
  void begin_calls();
  // There is no thread for it.
  void refuse_calls();
  // A call arrived that the client's process executes, with those that follow: give_to_host() returns when that process
  // does not want the connection any more. Before, what is to be sent must have been sent.
  bool wants_host() const { return wants_host_; }
  void give_to_host();
  // The client asked for the numbers of the server, which are about to be wrong: announce() has it ask again.
  bool wants_news() const { return wants_news_ && is_open() && !in_pieces_; }
  void announce();
  // A new connection that the client passed over this one, or -1. The caller closes it.
  int take_accepted() { return socket_.take_accepted(); }

  uint32_t interest = 0;  // for the serving thread: the epoll events that are registered

 private:
  enum class State { kGreeting, kChallenged, kOpen, kClosing };
  static constexpr size_t kMaxOutput = 2 * 1024 * 1024;
  static constexpr size_t kGreetingBytes = sizeof(wire::FrameHeader) + sizeof(wire::HelloRequest);
  static constexpr size_t kReceiveBytes = 32 * 1024;       // smallest size of a receive
  static constexpr size_t kIdleBytes = 128 * 1024;         // capacity kept in each buffer of an idle connection
  static constexpr uint64_t kTurnVisits = Visits{}.limit;  // of the requests of one turn, as of one piece
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;

  size_t wanted_bytes() const;
  bool receive_some();
  void note_tls_failure();
  void refuse_plain_text();
  bool answer_next_frame();
  void answer_complete_frames();
  bool check_frame(const wire::FrameHeader& header, wire::Bytes payload);
  Outcome handle(wire::Op op, wire::Bytes payload);
  Outcome greet(wire::Bytes payload);
  Outcome open(wire::Bytes payload);
  void follow(Outcome outcome);
  void finish_request();
  void note_requests(uint64_t executed);
  void close_with_error(int code, const char* what);
  void begin_closing();

  ServerState* const server_;
  const Peer peer_;
  ClientSocket socket_;
  Replies replies_;
  Authentication authentication_;
  Client client_;
  std::optional<Handlers> handlers_;  // of an open connection
  State state_ = State::kGreeting;
  const uint64_t accepted_ns_;
  uint64_t since_;  // time of acceptance, or of the error reply
  uint64_t requests_ = 0;
  bool wants_thread_ = false;
  bool has_thread_ = false;
  bool wants_host_ = false;
  bool wants_news_ = false;
  uint64_t begun_ns_ = 0;   // the request that is being executed
  bool in_pieces_ = false;  // it was begun, and has further pieces
  bool is_unfinished_ = false;
  uint64_t turn_visits_ = 0;
  Buffer input_;
};

}  // namespace farside::server
