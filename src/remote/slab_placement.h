// On which servers of a pool a slab is placed. reserve() reserves memory in advance on the servers with the most free
// memory, so that the replicas of a slab are on different servers. A slab is placed when its first byte is claimed, and
// takes its memory from that reservation; it returns it when its last byte is unclaimed. So no claim succeeds for which
// no server has memory, however sparsely slabs are used.
#pragma once
#include "base/sync.h"
#include "remote/pool_servers.h"

namespace farside::remote {

// A copy of a slab that is being made on one more server.
struct SlabRepair {
  uint64_t slab;
  unsigned server;
};

class SlabPlacement {
 public:
  explicit SlabPlacement(PoolServers* servers) : servers_(*servers) {}

  // Held during round trips.
  Mutex& lock() RETURN_CAPABILITY(lock_) { return lock_; }
  Status reserve(uint64_t slabs) REQUIRES(lock_);
  void shrink(uint64_t bytes) REQUIRES(lock_);
  Status claim(uint64_t far, uint64_t bytes) REQUIRES(lock_);
  void unclaim(uint64_t far, uint64_t bytes) REQUIRES(lock_);
  // These servers get no new slabs from now on.
  void close_to_new_slabs(ServerSet servers) REQUIRES(lock_);
  // Chooses a slab with too few copies, from *next on, and a server for one more, which gets the slab's writes from now
  // on. False: there is none. One slab is repaired at a time, and keeps its servers meanwhile.
  bool begin_repair(uint64_t* next, SlabRepair* repair) REQUIRES(lock_);
  // The copy will not be completed: writes that begin from now on are not sent to its server.
  void leave_repair(const SlabRepair& repair) REQUIRES(lock_);
  // complete: the server is a holder from now on; else it has nothing of the slab any more, or is lost.
  void end_repair(const SlabRepair& repair, bool complete) REQUIRES(lock_);
  // Places a slab that is written without a claim on reserved memory. 0: none is reserved. Thread-safe.
  ServerSet place_unclaimed(uint64_t slab);

 private:
  using Slabs = uint64_t[kMaxServers];  // a number for each server

  ServerSet open() const REQUIRES(lock_) { return servers_.usable() & ~closed_; }
  void read_room(Slabs room) REQUIRES(lock_);
  ServerSet take_most(Slabs room) const REQUIRES(lock_);
  Status grow_each(const Slabs taken, ServerSet* refusing) REQUIRES(lock_);
  Status place(uint64_t slab) REQUIRES(lock_);
  ServerSet place_on_reserve(uint64_t slab) REQUIRES(lock_);
  void release(uint64_t slab) REQUIRES(lock_);
  void give_back(ServerSet servers) REQUIRES(lock_);
  unsigned server_for_copy(uint64_t slab, const Slabs room) const REQUIRES(lock_);
  bool take_one(unsigned server) REQUIRES(lock_);

  PoolServers& servers_;
  Mutex lock_;                              // guards changes of the table of slabs, too
  Slabs spare_ GUARDED_BY(lock_) = {};      // slabs reserved on each server and not yet used
  ServerSet closed_ GUARDED_BY(lock_) = 0;  // servers that get no new slabs
  bool warned_few_ GUARDED_BY(lock_) = false;
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t repaired_slab_ GUARDED_BY(lock_) = kNone;
};

}  // namespace farside::remote
