// A region on one memory server: all of far memory if there is a single server, else a member of a PoolStore. Owns the
// region's connections and its mapping. Thread-safe; open_channel may be called during a fault.
#pragma once
#include "base/sync.h"
#include "remote/address.h"
#include "remote/remote_store.h"
#include "transport/dial.h"
#include "transport/reconnecting.h"
#include "transport/shm.h"

namespace farside::remote {

class ServerStore final : public RemoteStore {
 public:
  // As connect_store(), for one parsed address. The region reads as zeros, and nothing is reserved for it.
  static Result<std::unique_ptr<ServerStore>> connect(const Address& address, const StoreConfig& config);
  ~ServerStore() override;

  transport::Channel* open_channel(Status* status) override;
  void close_channel(transport::Channel* channel) override;
  Status grow(uint64_t bytes) override;
  void shrink(uint64_t bytes) override;
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket ticket) override { close_snapshot(ticket.of[0]); }
  Status adopt_in_child(ForkTicket ticket) override;
  const Address& parsed_address() const { return address_; }
  const char* address() const override { return address_.endpoint.name; }
  const char* transport_name() const override {
    return address_.is_shm() ? "shm" : address_.is_tls() ? "tls" : address_.is_ucx ? "ucx" : "tcp";
  }
  bool owns_fd(int fd) const override { return fds_.contains(fd); }

  ServerStore* call_server(unsigned i) override { return i == 0 ? this : nullptr; }
  uint32_t call_holders(uint64_t, uint64_t, bool) override { return 1; }

  // One more connection to the region, or -1 with the reason in *status.
  int open_connection(Status* status);
  void close_connection(int fd) { fds_.close(fd); }
  const transport::RetryPolicy& retry() const { return retry_; }

  // The parts of prepare_fork, forked_in_parent and adopt_in_child that concern one server.
  Result<Snapshot> snapshot();
  void close_snapshot(const Snapshot& made) {
    if (ReplacingFds::are_shared()) shares_fds_ = true;  // it would be closed in the child, too
    else fds_.close(made.fd);
  }
  Status adopt(const Snapshot& made);

  // Whether the server can still be reached, and whether it drains. Costs a round trip only where the server says that
  // something has changed, the idle control connection has broken, or it was used for something else since. The end of
  // a server over shared memory is not looked at: its memory stays mapped without it.
  Status check_connection();
  // As of the last reply: this process is to move what it has there to other servers.
  bool is_draining() const { return is_draining_; }
  // Ends all connections, so that the server can free the region. The store must not be used any more; where threads
  // still do, they get -ECONNRESET.
  void leave();
  // Where no thread uses the store any more.
  void close_all() { fds_.close_all_but(-1); }
  bool shares_fds() const { return shares_fds_; }
  // Of the server in which the region was made; the same at all its addresses, and another one after its restart.
  uint64_t number() const { return number_; }

  // The memory that the server has left to reserve, for all clients. One round trip.
  Result<uint64_t> free_bytes();

  // Why the server was lost, or refused a request; success if it was not.
  Status failure() const { return failures_.reason(); }
  // The reason, where no channel has reported one.
  void keep_failure(const char* reason) {
    failures_.keep(Status::error(ECONNRESET, "memory server {} is lost: {}", address(), reason));
  }

  // The mapped region; nullptr over TCP, and in forked children, whose regions only the server can read.
  const transport::ShmRegion* mapped() const { return shm_.get(); }

 private:
  ServerStore(const Address& address, const StoreConfig& config)
      : config_(config), address_(address), retry_(config.retry), failures_(config.on_failure) {}
  Status use();
  Status create_region() REQUIRES(control_lock_);
  Status create_with_reservation() REQUIRES(control_lock_);
  Status map_memory(std::span<int> files, uint64_t bytes) REQUIRES(control_lock_);
  void attach_to(uint64_t region, const uint8_t* secret) REQUIRES(control_lock_);  // control_fd_ is set
  ssize_t look_for_input() REQUIRES(control_lock_);
  bool is_broken() REQUIRES(control_lock_);
  void keep_region_alive();
  Status change_reservation(wire::Op op, uint64_t bytes) REQUIRES(control_lock_);
  Status call(wire::Op op, std::span<const std::byte> request, std::span<std::byte> reply) REQUIRES(control_lock_);

  const StoreConfig config_;  // its strings may be gone, unless it is deferred
  const Address address_;
  const transport::RetryPolicy retry_;
  transport::OwnFds fds_;
  transport::FailureReport failures_;
  transport::Dialer attach_;  // opens further connections to the region
  std::unique_ptr<transport::ShmRegion> shm_;

  Mutex control_lock_;                               // held while the control connection is in use
  int control_fd_ GUARDED_BY(control_lock_) = -1;    // keeps the region alive; -1 when it was lost
  uint64_t sequence_ GUARDED_BY(control_lock_) = 0;  // of the last reservation
  uint64_t reserved_ GUARDED_BY(control_lock_) = 0;  // bytes; on the server, or to be when the region is made
  bool is_made_ GUARDED_BY(control_lock_) = false;   // the region
  uint64_t number_ = 0;                              // changes only where the region is made later than the store
  // A channel was opened, so that the region may have content. A fork before that needs no snapshot: the child makes a
  // region of its own, when it needs one.
  std::atomic<bool> is_used_{false};
  bool awaits_news_ GUARDED_BY(control_lock_) = false;  // the server will say that its last reply is not true any more
  std::atomic<bool> is_draining_{false};
  bool shares_fds_ = false;  // with a child or parent, whose connections must not be ended
};

}  // namespace farside::remote
