// Makes copies of slabs on other servers, in place of those that were lost and of those on servers that drain, in the
// background, while the program runs. The protocol, and why no write is lost, is in docs/internals/replicas.md;
// tests/model/repair_model.h is its model.
//
// At most half of the time is spent on copying, so that a repair takes at most half of what a connection carries.
#pragma once
#include <atomic>

#include "base/service_thread.h"
#include "base/sync.h"
#include "remote/pool_servers.h"
#include "remote/slab_placement.h"
#include "transport/transport.h"

namespace farside::remote {

class Repair {
 public:
  // The callback is called by the thread of the repair between the copies of slabs. It may add servers.
  Repair(PoolServers* servers, SlabPlacement* placement, void (*callback)(void*), void* argument);
  ~Repair();

  // The thread. Starting it is an error that is logged: the program works without repairs.
  void start();
  void stop();
  // Around a fork: no slab is being repaired between the two. Not analyzed: between them is the fork.
  void pause() NO_THREAD_SAFETY_ANALYSIS;
  void resume() NO_THREAD_SAFETY_ANALYSIS;
  void reset_in_child() NO_THREAD_SAFETY_ANALYSIS;

  // Repairs one slab. False: there was none, or no server for its copy. Without a thread, for tests.
  bool step();
  // What is to be done between the copies of slabs. Likewise.
  void tend();

  // Thread-safe.
  RepairStatus status() const;

 private:
  enum class Copied { kDone, kWritten, kFailed };

  void run();
  void look_at_servers() REQUIRES(working_);
  void retire_lost() REQUIRES(working_);
  void report();
  void note_lack_of_room(bool lacks);
  bool wants_to_stop() const { return stopping_.load(std::memory_order_relaxed) || pausing_.load(); }
  bool begin(SlabRepair* repair);
  void note_begin();
  bool copy(const SlabRepair& repair);
  Copied copy_place(const SlabRepair& repair, uint64_t far);
  int read_place(unsigned server, uint64_t far);
  int write_place(unsigned server, uint64_t far);
  void remove(uint64_t slab, unsigned server);
  int wait_until_quiet(uint64_t far, unsigned server);
  bool is_quiet(uint64_t far) const;
  int wait(unsigned server, transport::Token token);
  void lose(unsigned server, int error);
  int open(unsigned server);
  void close(unsigned server);
  void release();

  PoolServers& servers_;
  SlabPlacement& placement_;
  void (*const callback_)(void*);
  void* const argument_;
  std::byte* buffer_ = nullptr;  // one place; nullptr while no copy is made
  uint64_t next_slab_ = 0;
  uint64_t reported_ = 0;         // of repaired_
  uint64_t lacks_room_ns_ = 0;    // since when no other server has room for what drains; 0: one has
  ServerSet warned_of_room_ = 0;  // of servers that drain, those of which this was said
  // Progress. The places are those since the repair began, as the first one of several; 0 ns: there is none.
  std::atomic<uint64_t> repaired_{0}, began_ns_{0}, copied_places_{0}, copied_of_slab_{0};
  ServerChannel channels_[kMaxServers];
  ServiceThread thread_;
  std::atomic<bool> stopping_{false}, pausing_{false};
  Mutex working_;  // held while a slab is repaired, and between pause() and resume()
  Event changed_;
};

}  // namespace farside::remote
