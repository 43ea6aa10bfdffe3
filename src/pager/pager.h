// The pager: the one facade through which the layers above use far memory. It owns the far space, the page words, the
// frame budget and the evictors, and serves faults on the thread that has them.
//
//   std::unique_ptr<Pager> pager = std::move(*Pager::create(options, store, Delivery::kSignal));
//   pager->start_threads();
//   std::byte* memory = pager->reserve(bytes, kPageSize);
//   pager->commit(memory, bytes);                          // reads as zero, may go far
//   ... touch it; a SIGBUS handler calls pager->fault(address, write) ...
//   pager->decommit(memory, bytes);
//   pager->release(memory, bytes);
//
// Lock order and the rules for code under a fault: docs/internals/locking.md.
#pragma once
#include <memory>
#include <span>

#include "abi/options.h"
#include "base/near.h"
#include "pager/evictor_group.h"
#include "pager/far_space.h"
#include "pager/fault_path.h"
#include "pager/frames.h"
#include "pager/hint_path.h"
#include "pager/page_table.h"
#include "pager/policy/policy_set.h"
#include "pager/range_ops.h"
#include "pager/space_allocator.h"
#include "pager/thread_slot.h"
#include "remote/remote_store.h"

namespace farside::pager {

class Pager : public NearObject {
 public:
  // Takes the options local, policy, evictors, prefetch and space. The store's region must be as large as the space.
  // Evictor threads do not run before start_threads(): a preload library is set up before threads may exist.
  static Result<std::unique_ptr<Pager>> create(const Options& options, remote::RemoteStore* store, Delivery delivery);
  ~Pager();

  void start_threads();
  // As EvictorGroup::call_regularly.
  void call_regularly(void (*work)()) { evictors_.call_regularly(work); }

  // ---- Faults. Async-signal-safe; no handler of the program may run meanwhile. ----

  // Makes the page at `address` (which must lie in far space) present and, for a write, writable.
  // may_suspend: a fiber whose worker may run others meanwhile (fiber/wait.h).
  FaultOutcome fault(uint64_t address, bool write, bool may_suspend = false) {
    return faults_.fault(address, write, may_suspend);
  }
  // Between fibers of a worker, while one of them waits for a page. Signals are blocked.
  void poll_reads() { fetches_.poll_reads(); }
  bool contains(uint64_t address) const { return table_.contains(address); }
  // Ordinary code's word of what it will access next. Harmless whatever it says. Returns the pages fetched.
  unsigned hint(const Hint& hint);
  // ---- For the layer of objects (DESIGN 7). Ordinary code. ----

  // As FetchPath::read_subpages. A fiber may be suspended meanwhile.
  void read_subpages(std::span<SubpageRead> reads);
  // Committed pages hold objects from now on, until they are discarded: the observer is told when one leaves.
  void mark_objects(std::byte* address, size_t bytes);
  void set_observer(PageObserver* observer) { evictors_.set_observer(observer); }
  // Nobody will use the page soon: it leaves next.
  void evict_first(uint64_t address) {
    SignalsBlocked blocked;
    evictors_.evict_first(table_.index_of(address));
  }
  // No window brings the page near any more: its objects are taken one by one.
  void take_object_path(uint64_t address) { table_[table_.index_of(address)].set(PageWord::kObjectPath); }

  // The word of the page at `address`, which must lie in far space.
  PageWord word(uint64_t address) { return table_[table_.index_of(address)].load(); }

  // ---- Address space. Thread-safe. Sizes are multiples of the page size. ----

  // Reserves addresses; commit() makes a part of them usable. nullptr: no addresses left. commit fails with ENOMEM
  // when far memory is full.
  std::byte* reserve(size_t bytes, size_t alignment);
  // Reserves exactly this range, if it is free.
  bool reserve_at(std::byte* address, size_t bytes);
  Status commit(std::byte* address, size_t bytes);
  void decommit(std::byte* address, size_t bytes);
  void release(std::byte* address, size_t bytes);

  // The pages read as zero afterwards, and the server forgets them (MADV_DONTNEED).
  void discard(std::byte* address, size_t bytes);
  // Changes the protection of committed pages (PROT_*). -errno as Status.
  Status protect(std::byte* address, size_t bytes, int protection);
  bool is_committed(const std::byte* address, size_t bytes);
  // Makes an access to a page that belongs to no allocation end in SIGSEGV, as it would natively.
  void guard_page(uint64_t address);

  // ---- Regions: reserved ranges whose pages leave by a policy of their own. At most 64. ----

  // EINVAL: overlaps another one; ENOSPC: 64 exist.
  Status add_region(std::byte* address, size_t bytes, PolicyKind policy);
  // Before the range is released. Its near pages stay near and leave like others.
  void remove_region(std::byte* address);

  // ---- Pinning, for system calls: pinned pages stay near until unpinned. ----

  // Brings the pages near (writable if write) and pins them. Returns the bytes pinned from `address` on: all, or up to
  // a page that is not the program's.
  size_t pin(const void* address, size_t bytes, bool write);
  void unpin(const void* address, size_t bytes);

  // ---- Budget ----

  // Changes the limit of near memory while the program runs. Thread-safe.
  void set_local(SizeOrShare local);
  uint64_t near_limit_bytes() const { return frames_.limit() * kPageSize; }

  // ---- fork ----

  // Before: no page is on the move afterwards, and the server keeps a snapshot. After the kernel's fork exactly one of
  // the two others runs on each side (`forked`: false if the kernel's fork failed). Before fork_in_child has run the
  // child must not touch far memory at all. It leaves a pager that pages by signal and whose evictors do not run yet:
  // start_threads_in_child() starts them from ordinary code.
  void prepare_fork();
  void fork_in_parent(bool forked);
  void fork_in_child();
  void start_threads_in_child();
  // Whether a forked child has the far space at all; without it, an access there ends in SIGSEGV.
  void inherit_in_fork(bool inherit) { space_->inherit_in_fork(inherit); }

  // The calling thread ends.
  void detach_thread();

  Stats stats();
  const char* policy_name() const { return policy_.name(); }
  bool unmaps_in_batches() const { return space_->unmaps_in_batches(); }
  int uffd() const { return space_->uffd(); }
  void wake_waiters(uint64_t address) { space_->wake(table_.address_of(table_.index_of(address)), kPageSize); }
  std::byte* base() const { return space_->base(); }
  const uint64_t* page_words() { return reinterpret_cast<const uint64_t*>(&table_[0]); }
  uint64_t space_bytes() const { return space_->bytes(); }
  bool owns_fd(int fd) const { return space_->owns_fd(fd) || store_->owns_fd(fd) || evictors_.owns_fd(fd); }
  remote::RemoteStore* store() { return store_; }

  // Walks the table and stops the process if a word or a count is impossible. Only while nothing faults.
  void check_valid();

 private:
  Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space);
  Status charge(const std::byte* address, size_t bytes);
  void uncharge(const std::byte* address, size_t bytes);
  uint64_t used_pages();
  void unlock_after_fork();
  void protect_shared_frames();
  void forget_pins();

  static constexpr uint64_t kReserveAhead = 4 * remote::kSlabBytes;

  remote::RemoteStore* store_;
  std::unique_ptr<FarSpace> space_;
  PageTable table_;
  PolicySet policy_;
  Frames frames_;
  Twins twins_;
  ThreadRegistry threads_;
  Gate gate_;
  Budget budget_;
  Context context_;
  EvictorGroup evictors_;
  FetchPath fetches_;
  FaultPath faults_;
  HintPath hints_;
  RangeOps ranges_;

  Mutex address_mutex_;  // guards addresses_, and changes of policy_'s ranges
  SpaceAllocator addresses_;
  Mutex protection_mutex_;  // keeps commit() and guard_page() apart
  Mutex charge_mutex_;      // guards charged_, reserved_
  uint64_t charged_ = 0;
  uint64_t reserved_ = 0;
  remote::ForkTicket ticket_;
  bool snapshot_failed_ = false;
  std::atomic<bool> protections_changed_{false};  // some page of the space may not be readable and writable
};

}  // namespace farside::pager
