// The servers of a pool, which of them are lost, and which of them hold which slab. A server has a number. Its number
// is given to another server when it is lost and nothing refers to it any more: no slab, and no thread by an open
// channel. Servers are added and retired under the lock of the placement. All else is thread-safe, and for use during a
// fault, except what is for one thread.
#pragma once
#include <atomic>
#include <memory>

#include "remote/server_store.h"
#include "remote/slab_table.h"
#include "remote/write_counts.h"

namespace farside::remote {

// A server with a number of the pool. It lives as long as it has that number or a channel, and until the thread of the
// repair deletes it.
struct PoolMember : NearObject {
  PoolMember(std::unique_ptr<ServerStore> server, std::string_view zone_name, uint64_t now, uint64_t wait)
      : store(std::move(server)), added_ns(now), wait_ns(wait) {
    zone_name.copy(zone, sizeof zone - 1);
  }
  const std::unique_ptr<ServerStore> store;
  char zone[wire::kZoneBytes] = {};  // "": none
  const uint64_t added_ns;
  const uint64_t wait_ns;                  // from a loss until the server is looked for
  std::atomic<uint64_t> retry_ns{0};       // when it is looked for, once it is lost
  std::atomic<bool> was_steady{true};      // it was lost only long after it was added, or left
  std::atomic<unsigned> channels{0};       // of all threads
  std::atomic<PoolMember*> next{nullptr};  // of those that have no number any more
  PoolMember* next_closed = nullptr;       // of those that are to be deleted
};

// A thread's channel to a server. The channel is null where it could not be opened.
struct ServerChannel {
  transport::Channel* channel = nullptr;
  PoolMember* member = nullptr;
};

// Which servers are lost, and how often a number was given to another server.
//    63        32 31       16 15        0
//    +-----------+-----------+-----------+
//    |  reused   |   zero    |   lost    |
//    +-----------+-----------+-----------+
struct alignas(8) ServerStates {
  uint16_t lost;
  uint16_t zero;
  uint32_t reused;
  bool operator==(const ServerStates&) const = default;
};
static_assert(sizeof(ServerStates) == 8 && std::atomic<ServerStates>::is_always_lock_free);

class PoolServers {
 public:
  explicit PoolServers(const StoreConfig& config)
      : region_bytes_(config.region_bytes),
        replicas_(config.replicas),
        on_failure_(config.on_failure),
        table_(config.region_bytes) {}
  ~PoolServers();

  // Whether a server with this address can be added.
  bool has_number(const char* address) const { return number_for(address) != kMaxServers; }
  void add(std::unique_ptr<ServerStore> server, std::string_view zone = {});
  // Numbers of lost servers that no slab names are free for others from now on. Those are returned. The others stay:
  // their mapping or descriptors may be in use elsewhere.
  ServerSet retire(ServerSet lost);
  ServerSet retired() const { return retired_.load(std::memory_order_relaxed); }
  // From now on each number belongs to the same server for ever.
  void keep_numbers() { keeps_numbers_ = true; }
  // Of the servers that have no number any more, those that no thread uses. One thread alone calls this, so what that
  // thread has got by operator[] lives at least until its next call.
  void delete_unused();
  void reset_in_child();
  // Before the first channel: servers are added later.
  void note_growth() { may_grow_ = true; }

  uint64_t region_bytes() const { return region_bytes_; }
  unsigned replicas() const { return replicas_; }
  unsigned count() const { return count_.load(std::memory_order_acquire); }
  ServerStore& operator[](unsigned i) const { return *member(i)->store; }
  ServerSet all() const { return (ServerSet{1} << count()) - 1; }
  // Sequentially consistent with SlabTable: a number that is given to another server counts as reused after no slab
  // names the server before.
  ServerStates states() const { return states_.load(std::memory_order_seq_cst); }
  ServerSet lost() const { return states().lost; }
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
  // The one that is not lost and is the same server, at whatever address; null: none.
  const ServerStore* find_same(const ServerStore& server) const;
  // Whether a server that was lost may be added again, under the same address: after 5 s, and after twice the time of
  // before if it fails again soon, so that it does not cost a repair all the time.
  bool may_return(unsigned lost, uint64_t now) const;
  // It did not: the time begins again.
  void delay_return(unsigned lost, uint64_t now) {
    PoolMember* m = member(lost);
    m->retry_ns.store(now + m->wait_ns, std::memory_order_relaxed);
  }
  // All servers in the zones of these, which are included. A server without a zone is alone in its own.
  ServerSet in_zones_of(ServerSet servers) const;
  unsigned zones(ServerSet servers) const;
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
  // Slabs with fewer copies on servers that stay than there should be, those without any included; or with copies in
  // fewer zones than there could be.
  uint64_t degraded() const;
  bool is_degraded(uint64_t slab) const;
  // See RemoteStore::call_holders().
  ServerSet call_holders(uint64_t far, uint64_t bytes, bool written) const;
  // The holder to which reads of the slab are sent. `holders` is not empty.
  unsigned reader_of(uint64_t slab, ServerSet holders) const;
  bool all_slabs_within(ServerSet servers) const;
  // The mapping of far memory, if one mapped server holds every slab; else none.
  transport::Mapping mapping() const;

  // A channel to the server that has the number now. Where none can be opened: the reason in *status.
  ServerChannel open_channel(unsigned server, Status* status);
  // Where the server is lost, the region there need not be kept alive any more.
  void close_channel(unsigned server, ServerChannel channel);
  bool is_current(unsigned server, const PoolMember* m) const { return member(server) == m; }

  // Marks a server as lost, if the number is still its own. Logs it once with the reason, unless it was the last one.
  void lose(unsigned server, PoolMember* m, const char* reason);
  // For those whose number does not change meanwhile: the threads that hold the lock of the placement or repair.
  void lose(unsigned server, const char* reason) { lose(server, member(server), reason); }
  // Likewise, in a forked child for which it has no snapshot.
  void lose_in_child(unsigned server) { mark_lost(server, member(server)); }
  // Reports that a request fails for good, with the reason of the server that refused it, or of that which was lost
  // last. Returns the error.
  int fail_request(int error, ServerSet servers) const;

 private:
  // While one lives, no server is deleted. Async-signal-safe.
  class Using {
   public:
    explicit Using(const PoolServers& servers) : servers_(servers) { servers_.users_.fetch_add(1); }
    ~Using() { servers_.users_.fetch_sub(1); }
    Using(const Using&) = delete;
    Using& operator=(const Using&) = delete;

   private:
    const PoolServers& servers_;
  };
  PoolMember* member(unsigned i) const { return members_[i].load(std::memory_order_seq_cst); }
  unsigned number_for(const char* address) const;
  uint64_t wait_of_next(const char* address) const;
  void note_zone(unsigned server);
  bool mark_lost(unsigned server, const PoolMember* m);

  const uint64_t region_bytes_;
  const unsigned replicas_;
  const transport::FailureReport::Handler on_failure_;
  SlabTable table_;
  WriteCounts writes_;
  WriteCounts calls_;                                   // of functions on servers, whatever they access
  std::atomic<PoolMember*> members_[kMaxServers] = {};  // the first count_ are set
  std::atomic<PoolMember*> replaced_{nullptr};          // have no number any more
  PoolMember* closed_ = nullptr;  // of these, those without channels and descriptors; not in that list
  std::atomic<ServerSet> same_zone_[kMaxServers] = {};  // as this one, which is included
  std::atomic<unsigned> count_{0};
  std::atomic<ServerStates> states_{ServerStates{}};
  std::atomic<ServerSet> draining_{0}, left_{0}, retired_{0};
  std::atomic<ServerSet> mapped_{0};        // whose memory is mapped in this process
  mutable std::atomic<unsigned> users_{0};  // of members that may have no number any more
  bool may_grow_ = false;
  std::atomic<bool> keeps_numbers_{false};
};

}  // namespace farside::remote
