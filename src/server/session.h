// One connection of a client: receives frames, executes the requests in order, and sends the replies. It never blocks.
// All input is checked by the codec; a violation of the protocol ends the connection with an error reply. Memory is
// bounded: the greeting, then one frame of input, and no request is read while kMaxOutput bytes of replies are not sent
// yet. A request that takes several pieces (piece.h) stays in the input meanwhile, and the worker calls go_on().
// States: greeting (the handshake of TLS, then only kHello is accepted) -> challenged (only kProve) -> open -> closing
// (an error reply is being sent) -> over. Used by one worker thread.
#pragma once
#include <string>

#include "base/buffer.h"
#include "server/admission.h"
#include "server/calls.h"
#include "server/counters.h"
#include "server/regions/memory_pool.h"
#include "server/registry.h"
#include "server/tokens.h"
#include "tls/stream.h"
#include "wire/codec.h"

namespace farside::server {

// Data shared by all sessions of a server. Its members are thread-safe or constant.
struct Shared {
  MemoryPool pool;
  Tokens tokens;
  Counters counters;
  std::unique_ptr<Registry> registry;  // of a controller; null elsewhere
  ucx::Settings ucx;
  Admission admission;
  std::unique_ptr<CallService> calls;  // null: the server executes no functions
};

class Session {
 public:
  // tls: null for a plain connection.
  Session(int fd, bool is_unix, const tls::Context* tls, uint64_t now, Shared* shared);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return fd_; }
  bool is_open() const { return state_ == State::kOpen; }
  // Where the connection comes from, see source_of().
  const std::string& source() const { return source_; }
  // Whether the client runs on this machine, and shares its cores.
  bool is_local() const { return is_local_; }
  uint64_t age_ns(uint64_t now) const { return now - since_; }
  bool over() const { return state_ == State::kOver; }
  bool wants_input() const {
    return state_ <= State::kOpen && output_.size() < kMaxOutput && !wants_thread_ && !wants_host_ && !is_unfinished_;
  }
  bool wants_output() const { return !output_.empty() || (tls_ && tls_->wants_write()); }
  // The time for the greeting and its proof, or for sending the error reply, has passed.
  bool is_expired(uint64_t now) const { return !is_open() && now - since_ > kTimeoutNs; }

  // Receives what arrived, executes the complete requests, and sends what the socket accepts. True: something was
  // received, or the connection is over.
  bool receive();
  void send();
  // A request has further pieces, or this turn of the connection was long enough: others are served, then go_on().
  bool is_unfinished() const { return is_unfinished_ && !over(); }
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
  // A new connection that the client passed over this one, or -1. The caller closes it.
  int take_connection();

  uint32_t interest = 0;  // for the worker: the epoll events that are registered

 private:
  enum class State { kGreeting, kChallenged, kOpen, kClosing, kOver };
  static constexpr size_t kMaxOutput = 2 * 1024 * 1024;
  static constexpr size_t kGreetingBytes = sizeof(wire::FrameHeader) + sizeof(wire::HelloRequest);
  static constexpr size_t kReceiveBytes = 32 * 1024;       // smallest size of a receive
  static constexpr size_t kInPlaceBytes = 16 * 1024;       // reads of as much are sent without a copy
  static constexpr size_t kIdleBytes = 128 * 1024;         // capacity kept in each buffer of an idle connection
  static constexpr uint64_t kTurnVisits = Visits{}.limit;  // of the requests of one turn, as of one piece
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;

  ssize_t receive_bytes(std::byte* to, size_t bytes);
  void refuse_plain_text();
  ssize_t send_bytes();
  bool receive_some();
  void answer_complete_frames();
  bool check_frame(const wire::FrameHeader& header, wire::Bytes payload);
  void finish_request();
  bool continues(int result);
  bool waits_for_memory(const Status& status);
  void handle(const wire::FrameHeader& header, wire::Bytes payload);
  void execute(wire::Op op, wire::Bytes payload);
  void greet(wire::Bytes payload);
  bool replace_older(const wire::HelloRequest& hello);
  Result<Region*> region_for(const wire::HelloRequest& hello, const wire::Key& key);
  void prove(wire::Bytes payload);
  bool authenticate(const wire::Proof& proof, wire::Key* key);
  void read(wire::Bytes payload);
  bool send_in_place(std::span<iovec> pieces, uint64_t bytes);
  bool flush();
  void note_sent(size_t bytes);
  void write(wire::Bytes payload);
  void discard(wire::Bytes payload);
  void reserve(wire::Op op, wire::Bytes payload);
  void share(wire::Bytes payload);
  void revoke(wire::Bytes payload);
  void stats();
  void take_report(wire::Bytes payload);
  void list_servers();
  void accept_passed(wire::Bytes payload);
  bool needs_thread(wire::Op op) const;
  void open_calls(wire::Bytes payload);
  void add_code(wire::Bytes payload);
  void call(wire::Bytes payload);
  std::byte* reserve_call_reply();
  void commit_call_reply(std::byte* answer, uint64_t request);

  void reply(wire::Bytes payload);
  void refuse(int code, const char* text);
  void refuse(int code);
  void append_frame(wire::Op op, wire::Bytes payload);
  void close_with_error(int code, const char* what);
  void note_client(const wire::HelloRequest& hello);
  void send_memory_fd();

  int fd_;
  const bool is_unix_;
  std::unique_ptr<tls::Stream> tls_;  // null: plain
  State state_ = State::kGreeting;
  const uint64_t accepted_ns_;
  uint64_t since_;  // time of acceptance, or of the error reply
  Shared* const shared_;
  std::string source_, peer_;  // see source_of() and peer_of()
  bool is_local_ = false;
  uint64_t requests_ = 0, received_ = 0, sent_ = 0;
  Admission::Refusal refusal_ = Admission::Refusal::kNone;  // the reply to the greeting
  wire::Greeting greeting_ = {};
  std::shared_ptr<Tenant> tenant_;  // of an open connection
  Region* region_ = nullptr;
  std::shared_ptr<Fence> fence_;  // of the connection's channel; null if it has none
  uint64_t generation_ = 0;
  bool wants_thread_ = false;
  bool has_thread_ = false;
  bool wants_host_ = false;
  std::unique_ptr<Calls> calls_;    // of a connection for calls
  bool broken_ = false;             // the connection failed or this side closed it: it is not the client's end
  int passed_fd_ = -1;              // arrived, its request was not executed yet
  int accepted_fd_ = -1;            // for take_connection
  bool pass_memory_ = false;        // the region's descriptor is passed with the reply in output_
  wire::FrameHeader request_ = {};  // the request that is being executed
  uint64_t begun_ns_ = 0;           // it
  bool in_pieces_ = false;          // it was begun, and has further pieces
  Progress progress_;               // of it
  std::vector<std::byte> pieces_;   // what was read for it
  bool is_unfinished_ = false;
  uint64_t turn_visits_ = 0;
  Buffer input_, output_;
};

// The numbers of the whole server, as in the reply to kStats.
wire::StatsReply collect_stats(Shared* shared);

}  // namespace farside::server
