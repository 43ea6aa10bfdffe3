// What a fork does to far memory. The server takes a snapshot for the child; near pages are shared with it
// copy-on-write.
//
//   prepare()      no page changes its state afterwards, and the server has taken a snapshot
//   the kernel's fork
//   in_parent()    or, in the child, in_child()
//
// The child must not touch far memory before in_child() has returned. That leaves a pager in signal mode whose evictors
// do not run yet: they are started from ordinary code.
#pragma once
#include "pager/address_space.h"
#include "pager/server_calls.h"

namespace farside::pager {

class ForkCoordinator {
 public:
  ForkCoordinator(const PageMemory& pages, FramePool& pool, const ThreadsAndGate& inside, remote::RemoteStore* store,
                  EvictorGroup& evictors, FetchPath& fetches, AddressSpace& addresses, ServerCalls& calls)
      : space_(pages.space),
        table_(pages.table),
        frames_(pages.frames),
        pool_(pool),
        threads_(inside.threads),
        gate_(inside.gate),
        store_(store),
        evictors_(evictors),
        fetches_(fetches),
        addresses_(addresses),
        calls_(calls) {}

  // Not analyzed: the locks that prepare() takes are released after the fork.
  void prepare() NO_THREAD_SAFETY_ANALYSIS;
  void in_parent(bool forked);  // false: the kernel's fork failed
  void in_child();
  // In the child: whether it has its far memory. Without, it works until it touches some.
  bool has_snapshot() const { return !snapshot_failed_; }

 private:
  void unlock() NO_THREAD_SAFETY_ANALYSIS;
  void protect_shared_frames();
  void protect(PageIndex first, uint64_t count);
  void clear_pins();

  FarSpace& space_;
  PageTable& table_;
  Frames& frames_;
  FramePool& pool_;
  ThreadRegistry& threads_;
  Gate& gate_;
  remote::RemoteStore* store_;
  EvictorGroup& evictors_;
  FetchPath& fetches_;
  AddressSpace& addresses_;
  ServerCalls& calls_;
  remote::ForkTicket ticket_;
  bool snapshot_failed_ = false;
};

}  // namespace farside::pager
