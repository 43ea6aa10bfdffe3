// Far memory on several servers. Each server has a region of the size of the far space; a table records which servers
// hold which slab (16 MiB). With N replicas each slab has N holders: writes and discards are sent to all of them, reads
// to one.
//
// Lost servers. A server is lost for this process when one of its connections fails, or, with replicas, when it refuses
// a request. It may have missed writes since then, so it is never used again, even if it can be reached again. The
// slabs that it held remain on their other holders. A slab whose holders are all lost is lost, and requests for it fail
// with -ECONNRESET.
//
// The servers are those of a list, or those in the list of a controller. The controller's list is read again whenever
// more memory is reserved: new servers are used at once, and servers that leave or are silent get no new slabs.
//
// Placement. grow() reserves memory in advance on the servers with the most free memory, so that the replicas of a slab
// are on different servers. A slab is placed when its first byte is claimed, and takes its memory from that
// reservation; it returns it when its last byte is unclaimed. So no claim succeeds for which no server has memory,
// however sparsely slabs are used.
#pragma once
#include <string_view>

#include "base/sync.h"
#include "remote/server_store.h"
#include "remote/slab_table.h"

namespace farside::remote {

class PoolStore final : public RemoteStore {
 public:
  // The address is a list of servers, separated by commas, or a controller ("pool://host:port"). All servers of a list
  // must be reachable if config.all_needed.
  static Result<std::unique_ptr<RemoteStore>> connect(const StoreConfig& config);
  ~PoolStore() override;

  transport::Channel* open_channel(Status* status) override;
  void close_channel(transport::Channel* channel) override { delete channel; }
  Status grow(uint64_t bytes) override;
  void shrink(uint64_t bytes) override;
  Status claim(uint64_t far, uint64_t bytes) override;
  void unclaim(uint64_t far, uint64_t bytes) override;
  ServerStore* call_server(unsigned i) override { return i < count() ? servers_[i].get() : nullptr; }
  uint32_t call_holders(uint64_t far, uint64_t bytes, bool written) override;
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket ticket) override;
  Status adopt_in_child(ForkTicket ticket) override;
  const char* address() const override { return address_; }
  const char* transport_name() const override { return "pool"; }
  bool owns_fd(int fd) const override;

  // The following functions are for the channels: thread-safe, and, except place_unclaimed, for use during a fault.

  uint64_t region_bytes() const { return region_bytes_; }
  unsigned replicas() const { return replicas_; }
  ServerStore& server(unsigned i) { return *servers_[i]; }
  ServerSet lost() const { return lost_.load(std::memory_order_acquire); }
  ServerSet holders(uint64_t slab) const { return table_.holders(slab); }
  // Places a slab that is written without a claim on reserved memory. 0: none is reserved.
  ServerSet place_unclaimed(uint64_t slab);
  // The holder to which reads of the slab are sent. `holders` is not empty.
  unsigned reader_of(uint64_t slab, ServerSet holders) const;
  // Marks a server as lost. Logs it once with the reason, unless it was the last one.
  void lose(unsigned server, const char* reason);
  // Notes that a server refused a request which no other server can serve.
  void note_refusal(unsigned server) { failed_.store(server, std::memory_order_relaxed); }
  // Reports that a request fails for good, with the reason of the server that failed last. Returns the error.
  int fail_request(int error) const;
  // The mapping of far memory, if one mapped server holds every slab; else none.
  transport::Mapping mapping() const;

 private:
  using Slabs = uint64_t[kMaxServers];  // a number for each server

  explicit PoolStore(const StoreConfig& config);
  Status add_listed(bool all_needed);
  Status add_from_controller() REQUIRES(lock_);
  Status add_server(std::string_view address);
  Status parse(std::string_view address, Address* out) const;
  ServerSet find(const char* address) const;
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  ServerSet usable() const { return ((ServerSet{1} << count()) - 1) & ~lost(); }
  ServerSet open() const REQUIRES(lock_) { return usable() & ~closed_; }
  bool all_slabs_within(ServerSet servers) const;

  void refresh_servers() REQUIRES(lock_);
  void close_to_new_slabs(ServerSet servers) REQUIRES(lock_);
  Status reserve(uint64_t slabs) REQUIRES(lock_);
  void read_room(Slabs room) REQUIRES(lock_);
  ServerSet take_most(Slabs room) const REQUIRES(lock_);
  Status grow_each(const Slabs taken, ServerSet* refusing) REQUIRES(lock_);
  Status place(uint64_t slab) REQUIRES(lock_);
  ServerSet place_on_reserve(uint64_t slab) REQUIRES(lock_);
  void release(uint64_t far, uint64_t bytes) REQUIRES(lock_);

  char address_[1024];  // as configured
  char token_[wire::kMaxToken + 1];
  char tls_relay_[sizeof(transport::Endpoint::relay)] = {};
  char ucx_relay_[sizeof(transport::Endpoint::relay)] = {};
  const uint64_t region_bytes_;
  const unsigned replicas_;
  const transport::RetryPolicy retry_;
  const PlainText plain_text_;
  SlabTable table_;
  Address controller_;                                 // where is_pool is true
  std::unique_ptr<ServerStore> servers_[kMaxServers];  // the first count_ are set and remain
  std::atomic<unsigned> count_{0};
  std::atomic<ServerSet> lost_{0};
  std::atomic<unsigned> failed_{0};  // the last server that was lost or refused a request
  const transport::FailureReport::Handler on_failure_;

  Mutex lock_;                              // guards changes of table_, too. Held during round trips
  Slabs spare_ GUARDED_BY(lock_) = {};      // slabs reserved on each server and not yet used
  ServerSet closed_ GUARDED_BY(lock_) = 0;  // servers that get no new slabs
  bool warned_few_ GUARDED_BY(lock_) = false;
  uint64_t next_refresh_ns_ GUARDED_BY(lock_) = 0;  // the controller did not reply: not before this time
};

}  // namespace farside::remote
