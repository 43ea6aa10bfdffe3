// One connection: frames in, replies out, in order. It never blocks and never trusts: what a peer sends is checked by
// the codec, and a breach of the protocol ends the connection with an error reply. Memory is bounded: one frame in,
// and no further request is taken while kMaxOutput bytes of replies wait for a slow peer.
// States: greeting (only kHello is accepted) -> open -> closing (an error reply is on its way out) -> over.
// Used by one worker thread.
#pragma once
#include <string>

#include "server/buffer.h"
#include "server/counters.h"
#include "server/memory_pool.h"
#include "server/registry.h"
#include "wire/codec.h"

namespace farside::server {

// What the sessions of a server share.
struct Shared {
  MemoryPool pool;
  std::string token;
  Counters counters;
  std::unique_ptr<Registry> registry;  // of a controller; null elsewhere
};

class Session {
 public:
  Session(int fd, bool is_unix, uint64_t now, Shared* shared);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int fd() const { return fd_; }
  bool is_open() const { return state_ == State::kOpen; }
  bool over() const { return state_ == State::kOver; }
  bool wants_input() const { return state_ <= State::kOpen && output_.size() < kMaxOutput; }
  bool wants_output() const { return !output_.empty(); }
  // A peer that has not greeted, or does not take its error_reply, is not waited for long.
  bool is_expired(uint64_t now) const { return !is_open() && now - since_ > kTimeoutNs; }

  // Receives once, answers what is complete, sends what the peer takes. True when there was something to do.
  bool receive();
  void send();
  void trim();

  uint32_t interest = 0;  // the worker's: epoll events that are registered

 private:
  enum class State { kGreeting, kOpen, kClosing, kOver };
  static constexpr size_t kMaxOutput = 2 * 1024 * 1024;
  static constexpr size_t kReceiveBytes = 32 * 1024;  // asked of the socket at least
  static constexpr size_t kIdleBytes = 128 * 1024;    // kept in each buffer of an idle connection
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;

  bool receive_some();
  void answer_complete_frames();
  void handle(const wire::FrameHeader& header, wire::Bytes payload);
  void execute(wire::Op op, wire::Bytes payload);
  void greet(wire::Bytes payload);
  bool replace_older(const wire::HelloRequest& hello);
  Result<Region*> region_for(const wire::HelloRequest& hello);
  bool token_is_right(const wire::HelloRequest& hello) const;
  void read(wire::Bytes payload);
  void write(wire::Bytes payload);
  void discard(wire::Bytes payload);
  void reserve(wire::Op op, wire::Bytes payload);
  void stats();
  void take_report(wire::Bytes payload);
  void list_servers();

  void reply(wire::Bytes payload);
  void refuse(int code, const char* text);
  void refuse(int code);
  void append_frame(wire::Op op, wire::Bytes payload);
  void close_with_error(int code, const char* what);
  void send_memory_fd();

  int fd_;
  const bool is_unix_;
  State state_ = State::kGreeting;
  uint64_t since_;  // when it was accepted, or began to close
  Shared* const shared_;
  Region* region_ = nullptr;
  std::shared_ptr<Fence> fence_;  // of the connection's channel; null where nothing replaces it
  uint64_t generation_ = 0;
  bool broken_ = false;             // over, and not because the peer closed it
  bool pass_memory_ = false;        // the reply in output_ takes the region's descriptor along
  wire::FrameHeader request_ = {};  // the one being answered
  Buffer input_, output_;
};

// The server-wide figures, as kStats reports them.
wire::StatsReply collect_stats(Shared* shared);

}  // namespace farside::server
