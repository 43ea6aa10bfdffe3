// The servers of a pool, which of them are lost, and which of them hold which slab. Servers are added by one thread at
// a time, and remain. All else is thread-safe, and for use during a fault.
#pragma once
#include <atomic>
#include <memory>

#include "remote/server_store.h"
#include "remote/slab_table.h"
#include "remote/write_counts.h"

namespace farside::remote {

class PoolServers {
 public:
  explicit PoolServers(const StoreConfig& config)
      : region_bytes_(config.region_bytes),
        replicas_(config.replicas),
        on_failure_(config.on_failure),
        table_(config.region_bytes) {}

  void add(std::unique_ptr<ServerStore> server);  // there are fewer than kMaxServers
  // Before the first channel: servers are added later.
  void note_growth() { may_grow_ = true; }

  uint64_t region_bytes() const { return region_bytes_; }
  unsigned replicas() const { return replicas_; }
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  ServerStore& operator[](unsigned i) const { return *servers_[i]; }
  ServerSet all() const { return (ServerSet{1} << count()) - 1; }
  ServerSet lost() const { return lost_.load(std::memory_order_acquire); }
  ServerSet usable() const { return all() & ~lost(); }
  // Servers that drain: their slabs are moved to others, and are read and written there meanwhile.
  ServerSet draining() const { return draining_.load(std::memory_order_acquire); }
  void set_draining(ServerSet servers) { draining_.store(servers, std::memory_order_release); }
  ServerSet staying() const { return usable() & ~draining(); }
  // Servers that drained and have nothing of this process any more. They count as lost, but may be added again.
  ServerSet left() const { return left_.load(std::memory_order_acquire); }
  void leave(unsigned server);
  // The server with this address that is not lost; empty: none.
  ServerSet find(const char* address) const;
  // Whether a server that was lost may be added again, under the same address: after 5 s, and after twice the time
  // with each further loss, so that a server that fails again and again does not use up the places.
  bool may_return(unsigned lost, uint64_t now) const;
  // It did not: the time begins again.
  void delay_return(unsigned lost, uint64_t now) { lost_ns_[lost].store(now, std::memory_order_relaxed); }
  // Whether there is or was a server with this address that was not left.
  bool knows(const char* address) const;
  bool owns_fd(int fd) const;

  SlabTable& table() { return table_; }
  ServerSet holders(uint64_t slab) const { return table_.holders(slab); }
  SlabServers servers_of(uint64_t slab) const { return table_.servers(slab); }
  WriteCounts& writes() { return writes_; }
  WriteCounts& calls() { return calls_; }
  // Whether slabs are copied, in place of lost copies or away from servers that drain: then writes are counted.
  bool repairs() const { return replicas_ > 1 || may_grow_; }
  // Slabs with fewer copies on servers that stay than there should be, those without any included.
  uint64_t degraded() const;
  bool is_degraded(uint64_t slab) const;
  // See RemoteStore::call_holders().
  ServerSet call_holders(uint64_t far, uint64_t bytes, bool written) const;
  // The holder to which reads of the slab are sent. `holders` is not empty.
  unsigned reader_of(uint64_t slab, ServerSet holders) const;
  bool all_slabs_within(ServerSet servers) const;
  // The mapping of far memory, if one mapped server holds every slab; else none.
  transport::Mapping mapping() const;

  // Closes a channel to a server. Where the server is lost, the region there need not be kept alive any more.
  void close_channel(unsigned server, transport::Channel* channel);

  // Marks a server as lost. Logs it once with the reason, unless it was the last one.
  void lose(unsigned server, const char* reason);
  // Likewise, in a forked child for which it has no snapshot.
  void lose_in_child(unsigned server) { lost_.fetch_or(only(server)); }
  // Notes that a server refused a request which no other server can serve.
  void note_refusal(unsigned server) { failed_.store(server, std::memory_order_relaxed); }
  // Reports that a request fails for good, with the reason of the server that failed last. Returns the error.
  int fail_request(int error) const;

 private:
  const uint64_t region_bytes_;
  const unsigned replicas_;
  const transport::FailureReport::Handler on_failure_;
  SlabTable table_;
  WriteCounts writes_;
  WriteCounts calls_;                                  // of functions on servers, whatever they access
  std::unique_ptr<ServerStore> servers_[kMaxServers];  // the first count_ are set
  std::atomic<unsigned> count_{0};
  std::atomic<ServerSet> lost_{0}, draining_{0}, left_{0};
  std::atomic<uint64_t> lost_ns_[kMaxServers] = {};
  std::atomic<unsigned> failed_{0};  // the last server that was lost or refused a request
  bool may_grow_ = false;
};

}  // namespace farside::remote
