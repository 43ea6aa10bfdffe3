// On which servers of a pool a slab is placed. reserve() reserves memory in advance on the servers with the most free
// memory, so that the replicas of a slab are on different servers. A slab is placed when its first byte is claimed, and
// takes its memory from that reservation; it returns it when its last byte is unclaimed. So no claim succeeds for which
// no server has memory, however sparsely slabs are used.
#pragma once
#include "base/sync.h"
#include "remote/pool_servers.h"

namespace farside::remote {

// A copy of a slab that is being made on one more server, in place of one that is lost or on a server that drains.
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
  // Nor do these, and the slabs that they have are to be moved to others. Those of them that are empty are left, where
  // others stay.
  void drain(ServerSet servers) REQUIRES(lock_);
  // Lost servers are no holders any more of slabs that others hold. Those that no slab names have no number from now
  // on, and are returned. No slab is being repaired meanwhile.
  ServerSet retire_lost() REQUIRES(lock_);
  // Chooses a slab with too few copies, from *next on, and a server for one more, which gets the slab's writes from now
  // on. False: there is none. One slab is repaired at a time, and keeps its servers meanwhile.
  bool begin_repair(uint64_t* next, SlabRepair* repair) REQUIRES(lock_);
  // copied: the server has all of the slab. Then it is a holder from now on, unless that is not needed any more.
  // Returns the server that gets no more writes of the slab, from which it is to be removed: this one, or one that
  // drains and is no holder any more. 0: there is none.
  ServerSet conclude_repair(const SlabRepair& repair, bool copied) REQUIRES(lock_);
  // These servers have nothing of the slab any more, or are lost.
  void end_repair(const SlabRepair& repair, ServerSet removed) REQUIRES(lock_);
  // Places a slab that is written without a claim on reserved memory. 0: none is reserved. Thread-safe.
  ServerSet place_unclaimed(uint64_t slab);

 private:
  using Slabs = uint64_t[kMaxServers];  // a number for each server

  ServerSet open() const REQUIRES(lock_) { return servers_.staying() & ~closed_; }
  void return_spare(ServerSet servers) REQUIRES(lock_);
  bool has_slab(unsigned server) const REQUIRES(lock_);
  void read_room(Slabs room) REQUIRES(lock_);
  ServerSet take_most(Slabs room) const REQUIRES(lock_);
  unsigned roomiest(ServerSet servers, const Slabs room) const REQUIRES(lock_);
  Status grow_each(const Slabs taken, ServerSet* refusing) REQUIRES(lock_);
  Status place(uint64_t slab) REQUIRES(lock_);
  ServerSet place_on_reserve(uint64_t slab) REQUIRES(lock_);
  void release(uint64_t slab) REQUIRES(lock_);
  void give_back(ServerSet servers) REQUIRES(lock_);
  unsigned server_for_copy(uint64_t slab, const Slabs room) const REQUIRES(lock_);
  ServerSet replaced_by(unsigned server, ServerSet holders) const REQUIRES(lock_);
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
