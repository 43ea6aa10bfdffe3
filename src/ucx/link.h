// One connection of the relay: a local socket to a channel of the program, and TCP to its memory server. Frames pass in
// both directions. Once the server has authenticated the channel, reads and writes that can be executed one-sidedly are
// taken out and answered here. Used by one thread; nothing waits.
// States: request (the local side names the server) -> connecting -> greeting -> open -> ending (the local side has
// gone, the server is still to take and send what is under way) -> over.
#pragma once
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "transport/relay_protocol.h"
#include "ucx/remote_region.h"

namespace farside::ucx {

// What links need of the relay.
class Regions {
 public:
  virtual ~Regions() = default;
  // The region with this number on that server. Where there is none, or is_new (a server that was restarted numbers its
  // regions from 1 again), it is made, if `bytes` is not 0.
  virtual std::shared_ptr<RemoteRegion> find(const transport::RelayRequest& server, uint64_t id, uint64_t bytes,
                                             bool is_new) = 0;
  // An older connection of the same channel has ended, though its end may not have arrived.
  virtual void supersede(const RemoteRegion* region, uint64_t channel, uint64_t generation) = 0;
};

class Link final : public RegionLink, public std::enable_shared_from_this<Link> {
 public:
  // Takes ownership of the local socket, which is not blocking.
  Link(int local, Regions* regions, uint64_t now) : local_(local), regions_(*regions), since_(now) {}
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int local() const { return local_; }
  int remote() const { return remote_; }  // -1 before the local side has named the server
  bool is_open() const override { return state_ == State::kOpen; }
  bool is_over() const { return state_ == State::kOver; }
  // The events to wait for; 0: the socket is not to be watched.
  uint32_t local_interest() const;
  uint32_t remote_interest() const;

  // Handle events of the sockets.
  void serve_local(uint32_t events);
  void serve_remote(uint32_t events);
  // Ends what takes too long.
  void expire(uint64_t now);
  void supersede(const RemoteRegion* region, uint64_t channel, uint64_t generation);

  void send_local(wire::Bytes frame) override;
  void send_remote(wire::Bytes frame) override;
  void repeat(wire::Bytes write) override;
  void ask_to_revoke() override;
  void resume() override;

  uint32_t watched_local = 0, watched_remote = 0;  // for the relay: the events that are registered

 private:
  enum class State { kRequest, kConnecting, kGreeting, kOpen, kEnding, kOver };
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  static constexpr size_t kReceiveBytes = 128 * 1024;
  static constexpr size_t kMaxQueued = 2 * 1024 * 1024;       // in each direction; no more is received then
  static constexpr uint64_t kOwnRequest = uint64_t{1} << 63;  // in the ids of requests of the relay

  // A write that the server executes, or a request of the relay.
  struct Forwarded {
    uint64_t id;
    std::vector<wire::ByteRange> ranges;
  };
  struct Question {
    uint64_t id;
    uint64_t offset;  // of the slab
    uint64_t snapshots_seen;
    bool is_revoke;
  };

  void receive_request();
  void finish_connecting();
  bool receive(int fd, Buffer* into);
  static bool send(int fd, Buffer* from);
  void take_requests();
  bool take_request(const wire::FrameHeader& header, wire::Bytes frame);
  void note_greeting(wire::Bytes payload);
  bool take_list(const wire::FrameHeader& header, wire::Op op, wire::Bytes frame);
  void forward_write(const wire::FrameHeader& header, const wire::ListRequest& list, wire::Bytes frame);
  void take_replies();
  void take_reply(const wire::FrameHeader& header, wire::Bytes frame);
  void note_reply(const wire::FrameHeader& header, wire::Bytes payload);
  void opened(wire::Bytes payload);
  void take_own_reply(const wire::FrameHeader& header, wire::Bytes payload);
  void ask_for(uint64_t offset);
  void ask(wire::Op op, wire::Bytes payload, Question question);
  void fail(int error);
  void leave();
  void end_local();
  void end_remote();

  const int local_;
  int remote_ = -1;
  Regions& regions_;
  uint64_t since_;  // time of acceptance, or of the end of the local side
  State state_ = State::kRequest;
  transport::RelayRequest request_ = {};
  size_t request_bytes_ = 0;  // received

  wire::HelloRequest hello_ = {};
  std::shared_ptr<RemoteRegion> base_;  // of a snapshot that is being made
  std::shared_ptr<RemoteRegion> region_;
  bool is_paused_ = false;  // the first frame in from_local_ must not begin yet
  Buffer from_local_, to_local_, from_remote_, to_remote_;
  std::vector<Forwarded> writes_;
  std::vector<Question> questions_;
  uint64_t last_question_ = 0;
};

}  // namespace farside::ucx
