// Far memory on several servers. Each server has a region of the size of the far space; a table records which servers
// hold which slab (16 MiB). With N replicas each slab has N holders: writes and discards are sent to all of them, reads
// to one.
//
// Lost servers. A server is lost for this process when one of its connections fails, or, with replicas, when it refuses
// a request. It may have missed writes since then, so its region is never used again. The slabs that it held remain on
// their other holders, and with replicas a repair makes the lost copies anew on other servers. A server that can be
// reached again is added as a further one, with a new region. A slab whose holders are all lost is lost, and requests
// for it fail with -ECONNRESET.
//
// The servers are those of a list, or those in the list of a controller. The controller's list is read again whenever
// more memory is reserved: new servers are used at once; servers that leave, are silent or cordoned get no new slabs.
// Servers of a pool say themselves that they drain: then a repair moves their slabs to others, and they are left.
#pragma once
#include <string_view>

#include "remote/pool_servers.h"
#include "remote/repair.h"
#include "remote/slab_placement.h"

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
  ServerStore* call_server(unsigned i) override;
  uint32_t call_holders(uint64_t far, uint64_t bytes, bool written) override {
    return servers_.call_holders(far, bytes, written);
  }
  void begin_call(uint64_t far, uint64_t bytes, bool written) override;
  void end_call(uint64_t far, uint64_t bytes, bool written) override;
  void start_threads() override;
  bool has_threads() const override { return servers_.repairs(); }
  void stop_threads() override { repair_.stop(); }
  RepairStatus repair_status() const override { return repair_.status(); }
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket ticket) override;
  Status adopt_in_child(ForkTicket ticket) override;
  const char* address() const override { return address_; }
  const char* transport_name() const override { return "pool"; }
  bool owns_fd(int fd) const override { return servers_.owns_fd(fd); }

  PoolServers& servers() { return servers_; }
  SlabPlacement& placement() { return placement_; }
  Repair& repair() { return repair_; }
  // What the thread of the repair does between the copies of slabs.
  void tend();
  // Adds a server that was lost and can be reached again.
  void look_for_servers();

 private:
  explicit PoolStore(const StoreConfig& config);
  Status add_listed(bool all_needed);
  Status add_from_controller() REQUIRES(placement_.lock());
  Status add_server(std::string_view address, std::string_view zone = {});
  Status parse(std::string_view address, Address* out, HostNames names = HostNames::kResolved) const;
  Result<std::unique_ptr<ServerStore>> connect_server(const Address& address, uint64_t timeout_ns);
  void report_copies(const RepairStatus& status);
  void look_for_new_server();
  bool is_up(const char* address, char* zone) const;
  bool add_again(const ServerStore& lost);
  bool add_connected(Result<std::unique_ptr<ServerStore>> server, std::string_view zone);
  void refresh_servers() REQUIRES(placement_.lock());

  char address_[1024];  // as configured
  char token_[wire::kMaxToken + 1];
  char tls_relay_[sizeof(transport::Endpoint::relay)] = {};
  char ucx_relay_[sizeof(transport::Endpoint::relay)] = {};
  const transport::RetryPolicy retry_;
  const PlainText plain_text_;
  Address controller_;  // where is_pool is true
  PoolServers servers_;
  SlabPlacement placement_;
  Repair repair_;
  // What the controller knows of this process's copies. Used by the thread of the repair.
  uint64_t client_number_;
  uint64_t next_report_ns_ = 0;
  bool lacks_copies_ = false;
  uint32_t next_candidate_ = 0;  // in the controller's list
  // The controller did not reply: not before this time.
  uint64_t next_refresh_ns_ GUARDED_BY(placement_.lock()) = 0;
};

}  // namespace farside::remote
