// All of far memory in this process: the far space, the page words, the frame budget, the evictors, and the parts by
// which the layers above use them.
//
//   std::unique_ptr<Pager> pager = std::move(*Pager::create(options, store, Delivery::kSignal));
//   pager->start_threads();
//   std::byte* memory = pager->addresses().reserve(bytes, kPageSize);
//   pager->addresses().commit(memory, bytes);              // reads as zero; may be evicted
//   ... touch it; a SIGBUS handler calls pager->paging().fault(address, write) ...
//   pager->addresses().decommit(memory, bytes);
//   pager->addresses().release(memory, bytes);
//
// Lock order and the rules for code under a fault: docs/internals/locking.md.
#pragma once
#include <memory>

#include "abi/options.h"
#include "base/near.h"
#include "pager/address_space.h"
#include "pager/evict/evictor_group.h"
#include "pager/evict/sampler.h"
#include "pager/fork_coordinator.h"
#include "pager/pages/frames.h"
#include "pager/pages/page_table.h"
#include "pager/paging.h"
#include "pager/policy/policy_set.h"
#include "pager/server_calls.h"
#include "pager/size/sizing.h"
#include "pager/space/far_space.h"
#include "pager/thread/thread_slot.h"
#include "remote/remote_store.h"

namespace farside::pager {

class Pager : public NearObject {
 public:
  // Uses the options local, slowdown, policy, evictors, prefetch, writeback and space. The store's region must be as
  // large as the space. Evictor threads do not run before start_threads(), because a preload library is set up before
  // it may start threads.
  static Result<std::unique_ptr<Pager>> create(const Options& options, remote::RemoteStore* store, Delivery delivery);
  ~Pager();

  void start_threads();
  // The same, for EvictorGroup::start_when_needed(). Async-signal-safe there.
  void start_threads_late();
  // Begins to sample pages, into a file whose name begins so, or a memfd (""). Before the threads are started, as in
  // the child of a fork, or in the regular work of the evictors, as is the end.
  Status sample(const char* file_prefix) {
    sampler_.reset();
    return samples_.open(file_prefix);
  }
  void stop_sampling() { samples_.close(); }
  bool is_sampling() const { return samples_.is_open(); }

  AddressSpace& addresses() { return addresses_; }
  Paging& paging() { return paging_; }
  ServerCalls& server_calls() { return calls_; }
  ForkCoordinator& forks() { return forks_; }
  EvictorGroup& evictors() { return evictors_; }
  PageTable& table() { return table_; }
  FarSpace& space() { return *space_; }
  const Frames& frames() const { return frames_; }
  const PolicySet& policy() const { return policy_; }
  remote::RemoteStore* store() { return store_; }

  Stats stats();
  // Whether the descriptor is one of Farside's. Async-signal-safe.
  bool owns_fd(int fd) const {
    return space_->owns_fd(fd) || store_->owns_fd(fd) || evictors_.owns_fd(fd) || samples_.owns_fd(fd);
  }
  // Walks the table and ends the process if a word or a count is impossible. Only while no thread faults.
  void check_valid();

 private:
  Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space);
  PageMemory near() { return {*space_, table_, policy_, frames_, budget_, twins_, samples_}; }
  HugePageMemory huge_memory() { return {huge_table_, huge_queue_, density_, pool_, account_}; }
  ThreadsAndGate inside() { return {threads_, gate_}; }

  remote::RemoteStore* store_;
  std::unique_ptr<FarSpace> space_;
  PageTable table_;
  PolicySet policy_;
  Frames frames_;
  Twins twins_;
  SampleLog samples_;
  ThreadRegistry threads_;
  Gate gate_;
  Budget budget_;
  Sizing sizing_;
  Sampler sampler_;
  HugeTable huge_table_;
  HugeQueue huge_queue_;
  HugeDensity density_;
  FramePool pool_;
  HugeAccount account_;
  EvictorGroup evictors_;
  HugePath huge_;
  FetchPath fetches_;
  FaultPath faults_;
  HintPath hints_;
  RangeOps ranges_;
  AddressSpace addresses_;
  Paging paging_;
  ServerCalls calls_;
  ForkCoordinator forks_;
};

}  // namespace farside::pager
