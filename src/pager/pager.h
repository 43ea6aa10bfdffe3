// The facade through which the layers above use far memory. A Pager owns the far space, the page words, the frame
// budget and the evictors. Faults are served on the faulting thread.
//
//   std::unique_ptr<Pager> pager = std::move(*Pager::create(options, store, Delivery::kSignal));
//   pager->start_threads();
//   std::byte* memory = pager->reserve(bytes, kPageSize);
//   pager->commit(memory, bytes);                          // reads as zero; may be evicted
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
#include "pager/evict/evictor_group.h"
#include "pager/fault/fault_path.h"
#include "pager/fault/hint_path.h"
#include "pager/pages/frames.h"
#include "pager/pages/page_table.h"
#include "pager/policy/policy_set.h"
#include "pager/range/range_ops.h"
#include "pager/space/far_space.h"
#include "pager/space/space_allocator.h"
#include "pager/thread/thread_slot.h"
#include "remote/remote_store.h"

namespace farside::pager {

class Pager : public NearObject {
 public:
  // Uses the options local, policy, evictors, prefetch, writeback and space. The store's region must be as large as the
  // space. Evictor threads do not run before start_threads(), because a preload library is set up before it may start
  // threads.
  static Result<std::unique_ptr<Pager>> create(const Options& options, remote::RemoteStore* store, Delivery delivery);
  ~Pager();

  void start_threads();
  // As EvictorGroup::call_without_threads.
  template <typename Call>
  long call_without_threads(Call call) {
    return evictors_.call_without_threads(call);
  }
  void keep_threads() { evictors_.keep_threads(); }
  // As EvictorGroup::call_regularly.
  void call_regularly(void (*work)()) { evictors_.call_regularly(work); }

  // ---- Faults. Async-signal-safe; no handler of the program may run meanwhile. ----

  // Makes the page at `address`, which must be in far space, present and, for a write, writable. may_suspend: as
  // Caller::may_suspend.
  FaultOutcome fault(uint64_t address, bool write, bool may_suspend = false) {
    return faults_.fault(address, write, may_suspend);
  }
  // Called by a worker between fibers while one of them waits for a page. Signals are blocked.
  void poll_reads() { fetches_.poll_reads(); }
  // True if the address has a page word. The page may be foreign.
  bool contains(uint64_t address) const { return table_.contains(address); }
  bool in_space(uint64_t address) const { return table_.in_space(address); }
  // Announces the next accesses of ordinary code. Any hint is harmless. Returns the number of pages fetched.
  unsigned hint(const Hint& hint);

  // ---- For the layer of objects. Ordinary code. ----

  // As FetchPath::read_subpages. A fiber may be suspended meanwhile.
  void read_subpages(std::span<SubpageRead> reads);
  // The committed pages hold objects until they are discarded: the observer is called when one of them is evicted.
  void mark_objects(std::byte* address, size_t bytes);
  void set_observer(PageObserver* observer) { evictors_.set_observer(observer); }
  // The page will not be used soon: it is evicted next.
  void evict_first(uint64_t address) {
    SignalsBlocked blocked;
    evictors_.evict_first(table_.index_of(address));
  }
  // No prefetch window includes the page any more: its objects are fetched one by one.
  void use_object_path(uint64_t address) { table_[table_.index_of(address)].set(PageWord::kObjectPath); }

  // The word of the page at `address`, which must be in far space.
  PageWord word(uint64_t address) { return table_[table_.index_of(address)].load(); }

  // ---- Address space. Thread-safe. Sizes are multiples of the page size. ----

  // Reserves addresses; commit() makes a part of them usable. nullptr: no addresses are left. commit() fails with
  // ENOMEM when far memory is full.
  std::byte* reserve(size_t bytes, size_t alignment);
  // Reserves exactly this range, if it is free.
  bool reserve_at(std::byte* address, size_t bytes);
  Status commit(std::byte* address, size_t bytes);
  void decommit(std::byte* address, size_t bytes);
  // As decommit, but near pages stay near until their frames are needed. A commit of such a page costs 0.25 us
  // instead of a fault. Only for ranges that are committed again, and nothing else.
  void decommit_lazily(std::byte* address, size_t bytes);
  void release(std::byte* address, size_t bytes);

  // Foreign pages: a range of far addresses may be given up for something else, like a file that the program maps
  // there, and addresses outside of the far space may become far. Both keep what surrounds them as it is.
  //
  // The range becomes far memory, reserved but not committed; what was mapped there is lost. In the far space it must
  // be reserved and foreign. Outside, page numbers are lent for [around, around_end) as far as possible: a range that
  // will be adopted in parts, so that its pages have successive numbers. ENOSPC: no page numbers are left.
  Status adopt(std::byte* address, size_t bytes, std::byte* around = nullptr, std::byte* around_end = nullptr);
  // As adopt, of addresses where nothing is mapped. EEXIST: something is by now.
  Status adopt_unmapped(std::byte* address, size_t bytes);
  // The decommitted range becomes foreign; the caller maps something there, or unmaps it.
  void abandon(std::byte* address, size_t bytes);
  bool is_foreign(uint64_t address) { return word(address).is_foreign(); }

  // The pages read as zero afterwards, and the server drops their content (MADV_DONTNEED).
  void discard(std::byte* address, size_t bytes);
  // Changes the protection of committed pages (PROT_*). -errno as Status.
  Status protect(std::byte* address, size_t bytes, int protection);
  bool is_committed(const std::byte* address, size_t bytes);
  // Makes accesses to a page that belongs to no allocation end in SIGSEGV, as they would natively. A foreign page is
  // left as it is.
  void guard_page(uint64_t address);

  // ---- Calls of functions on memory servers (docs/internals/offload.md). Ordinary code with signals blocked. ----

  // Whole pages of the far space; those of one call are in the order of their addresses.
  struct CallRange {
    std::byte* address;
    size_t bytes;
    bool written;
  };
  // What a call would have to do, from up to 64 pages of each range.
  struct CallShare {
    uint64_t pages = 0, far = 0, dirty = 0;
  };
  CallShare share_of(std::span<const CallRange> ranges);
  // Brings the ranges to the servers: near changes are written back, and of written ranges no page is near, nor becomes
  // near, before end_call. One call with written ranges at a time, and no fork meanwhile; other calls of this function
  // and forks wait. -EFAULT: a page belongs to no allocation, or the program may not access it.
  // Not analyzed: the lock is held between the two, and only if something is written.
  int begin_call(std::span<const CallRange> ranges) NO_THREAD_SAFETY_ANALYSIS;
  void end_call(std::span<const CallRange> ranges) NO_THREAD_SAFETY_ANALYSIS;

  // ---- Regions: reserved ranges with their own eviction policy. At most 64. ----

  // EINVAL: overlaps another one; ENOSPC: 64 exist.
  Status add_region(std::byte* address, size_t bytes, PolicyKind policy);
  // Call before the range is released. Its near pages stay near, and are evicted by the policy in whose queues they
  // are.
  void remove_region(std::byte* address);

  // ---- Pinning, for system calls: pinned pages are not evicted until unpinned. ----

  // Makes the pages near (writable if write) and pins them. Returns the number of bytes pinned from `address` on: all,
  // or up to a page that is not far memory, belongs to no allocation, or is sealed.
  size_t pin(const void* address, size_t bytes, bool write);
  void unpin(const void* address, size_t bytes);

  // ---- Budget ----

  // Changes the limit of near memory while the program runs. Thread-safe.
  void set_local(SizeOrShare local);
  // Whether near memory may consist of huge pages. Known after start_threads().
  bool uses_huge_pages() const { return huge_.is_open(); }
  // Advice for huge pages and streams (HugePath::advise).
  void advise(std::byte* address, size_t bytes, int advice);
  // Reads a range ahead (HintPath::fetch_range). What is not mapped, or not far memory, is skipped.
  void fetch_range(std::byte* address, size_t bytes, bool write, bool wait);
  // As HugePath::assume_other_writers.
  void assume_other_writers() { huge_.assume_other_writers(); }
  uint64_t near_limit_bytes() const { return frames_.limit() * kPageSize; }

  // Whether near memory was full at some time.
  bool has_evicted() const { return frames_.evicted() > 0; }

  // ---- fork ----

  // prepare_fork: afterwards no page changes its state, and the server has taken a snapshot. After the kernel's fork,
  // fork_in_parent (`forked`: false if the kernel's fork failed) or fork_in_child runs. The child must not touch far
  // memory before fork_in_child has returned. That leaves a pager in signal mode whose evictors do not run yet:
  // start_threads_in_child() starts them from ordinary code.
  void prepare_fork() NO_THREAD_SAFETY_ANALYSIS;  // the locks are held until after the fork
  void fork_in_parent(bool forked);
  void fork_in_child();
  void start_threads_in_child();
  // Whether a forked child has the far space. Without it, an access there ends in SIGSEGV.
  void inherit_in_fork(bool inherit);

  // To be called by a thread that ends.
  void detach_thread();

  Stats stats();
  const char* policy_name() const { return policy_.name(); }
  bool unmaps_in_batches() const { return space_->unmaps_in_batches(); }
  int uffd() const { return space_->uffd(); }
  void wake_waiters(uint64_t address) { space_->wake(table_.address_of(table_.index_of(address)), kPageSize); }
  std::byte* base() const { return space_->base(); }
  const uint64_t* page_words() { return reinterpret_cast<const uint64_t*>(table_.word_at(0)); }
  uint64_t space_bytes() const { return space_->bytes(); }
  bool owns_fd(int fd) const { return space_->owns_fd(fd) || store_->owns_fd(fd) || evictors_.owns_fd(fd); }
  remote::RemoteStore* store() { return store_; }

  // Walks the table and ends the process if a word or a count is impossible. Only while no thread faults.
  void check_valid();

 private:
  Pager(const Options& options, remote::RemoteStore* store, std::unique_ptr<FarSpace> space);
  void make_accessible(std::byte* address, size_t bytes);
  template <typename Drop>
  void decommit_range(std::byte* address, size_t bytes, Drop drop);
  Status charge(const std::byte* address, size_t bytes);
  void uncharge(const std::byte* address, size_t bytes);
  uint64_t reserve_ahead() const;
  bool take(PageIndex first, uint64_t count);
  void take_back(std::span<const CallRange> ranges);
  static bool is_written(std::span<const CallRange> ranges);
  uint64_t used_pages();
  uint64_t contained_bytes(uint64_t address, uint64_t bytes) const;
  Status lend(uint64_t begin, uint64_t end);
  bool lend_run(uint64_t begin, uint64_t end);
  Status adopt_range(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end, bool replace);
  template <typename Visit>
  void for_each_far_stretch(Visit visit);
  int watch_in_child();
  void unlock_after_fork() NO_THREAD_SAFETY_ANALYSIS;
  void protect_shared_frames();
  void clear_pins();

  static constexpr uint64_t kMaxReserveAhead = 4 * remote::kSlabBytes;

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
  HugeTable huge_table_;
  HugeQueue huge_queue_;
  HugeDensity density_;
  FramePool pool_;
  EvictorGroup evictors_;
  HugePath huge_;
  FetchPath fetches_;
  FaultPath faults_;
  HintPath hints_;
  RangeOps ranges_;

  Mutex written_call_mutex_;  // held during a call with written ranges, and during a fork
  Mutex address_mutex_;       // guards addresses_, and changes of the ranges of policy_
  SpaceAllocator addresses_;
  uint64_t lent_bytes_ = 0;  // guarded by address_mutex_
  Mutex protection_mutex_;   // guard_page() protects no page that is committed or abandoned
  Mutex charge_mutex_;       // guards charged_, reserved_
  uint64_t charged_ = 0;
  uint64_t reserved_ = 0;
  remote::ForkTicket ticket_;
  bool snapshot_failed_ = false;
  std::atomic<bool> protections_changed_{false};  // some page may not be readable and writable
  bool inherit_in_fork_ = true;
};

}  // namespace farside::pager
