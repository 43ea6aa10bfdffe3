// Far memory on several servers. Each has a region of the whole far space; a table says which servers hold which slab
// (16 MiB). With replicas, every slab lies on as many servers: writes and discards go to all of them, reads to one.
//
// A server is lost for this process when one of its connections fails or it refuses what it had reserved. It has missed
// writes from then on, so it is never read again, not even when it comes back. Slabs that it held live on their other
// holders; a slab without any is lost, and who asks for it gets -ECONNRESET.
//
// The servers are those of a list, or those that a controller knows: then it is asked each time more is reserved,
// servers that came are used at once, and those that leave or are silent get no new slabs.
//
// Placing. grow reserves ahead, on those servers that have the most room, and only where every replica of a slab has a
// server of its own. A slab takes its place from that reserve when its first byte is claimed, and gives it back with
// its last, so nothing is accepted that no server can hold, however sparsely slabs are used.
#pragma once
#include <string_view>

#include "base/sync.h"
#include "remote/server_store.h"
#include "remote/slab_table.h"

namespace farside::remote {

class PoolStore final : public RemoteStore {
 public:
  // The address names two servers or more, which must all be reached, or a controller ("pool://host:port").
  static Result<std::unique_ptr<RemoteStore>> connect(const StoreConfig& config);
  ~PoolStore() override;

  transport::Channel* open_channel(Status* status) override;
  void close_channel(transport::Channel* channel) override { delete channel; }
  Status grow(uint64_t bytes) override;
  void shrink(uint64_t bytes) override;
  Status claim(uint64_t far, uint64_t bytes) override;
  void unclaim(uint64_t far, uint64_t bytes) override;
  Result<ForkTicket> prepare_fork() override;
  void forked_in_parent(ForkTicket ticket) override;
  Status adopt_in_child(ForkTicket ticket) override;
  const char* address() const override { return address_; }
  const char* transport_name() const override { return "pool"; }
  bool owns_fd(int fd) const override;

  // What follows is for the channels: thread-safe, and may be called under a fault.

  uint64_t region_bytes() const { return region_bytes_; }
  unsigned replicas() const { return replicas_; }
  ServerStore& server(unsigned i) { return *servers_[i]; }
  ServerSet lost() const { return lost_.load(std::memory_order_acquire); }
  ServerSet holders(uint64_t slab) const { return table_.holders(slab); }
  // For a slab that nobody claimed: places it on what is reserved. 0 when nothing is. Not under a fault.
  ServerSet place_unclaimed(uint64_t slab);
  // The one of these holders that reads of the slab go to. `holders` is not empty.
  unsigned reader_of(uint64_t slab, ServerSet holders) const;
  // Never to be used again. Tells it once, while others are left.
  void lose(unsigned server, const char* why);
  // All of far memory in place, where one mapped server holds every slab; else nullptr.
  transport::Mapping mapping() const;

 private:
  using Slabs = uint64_t[kMaxServers];  // a number for each server

  explicit PoolStore(const StoreConfig& config);
  Status add_listed(bool all_needed);
  Status add_from_controller();
  Status add_server(std::string_view address);
  Status parse(std::string_view address, Address* out) const;
  ServerSet find(const char* address) const;
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  ServerSet usable() const { return ((ServerSet{1} << count()) - 1) & ~lost(); }
  ServerSet open() const { return usable() & ~closed_; }
  bool all_slabs_within(ServerSet servers) const;

  // With lock_.
  void refresh_servers();
  void close_to_new_slabs(ServerSet servers);
  Status reserve(uint64_t slabs);
  void read_room(Slabs room);
  ServerSet take_most(Slabs room) const;
  Status grow_each(const Slabs taken, ServerSet* refusing);
  Status place(uint64_t slab);
  ServerSet place_on_reserve(uint64_t slab);
  void release(uint64_t far, uint64_t bytes);

  char address_[1024];  // as configured
  char token_[wire::kMaxToken + 1];
  const uint64_t region_bytes_;
  const unsigned replicas_;
  const transport::RetryPolicy retry_;
  SlabTable table_;
  Address controller_;                                 // where is_pool is true
  std::unique_ptr<ServerStore> servers_[kMaxServers];  // the first count_ are there to stay
  std::atomic<unsigned> count_{0};
  std::atomic<ServerSet> lost_{0};

  Mutex lock_;            // guards placing: changes of table_ and what follows. Held over round trips
  Slabs spare_ = {};      // reserved there and not taken by a slab yet
  ServerSet closed_ = 0;  // get no new slabs
  bool warned_few_ = false;
  uint64_t next_refresh_ns_ = 0;  // the controller did not answer: not before
};

}  // namespace farside::remote
