// The addresses of far memory: which are reserved, which are committed, with what protection, and which are foreign.
//
// A range of far addresses may be given up for something else, like a file that the program maps there, and addresses
// outside of the far space may become far: page numbers are lent for them (pages/page_table.h). Pages whose addresses
// are taken by something else are foreign.
//
// Thread-safe. Ordinary code, but guard_page(). Sizes are multiples of the page size.
#pragma once
#include "pager/policy/policy_set.h"
#include "pager/range/range_ops.h"
#include "pager/space/far_charge.h"
#include "pager/space/far_space.h"
#include "pager/space/space_allocator.h"

namespace farside::pager {

class AddressSpace {
 public:
  AddressSpace(FarSpace& space, PageTable& table, PolicySet& policies, remote::RemoteStore* store, RangeOps& ranges,
               HugePath& huge, EvictorGroup& evictors);

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

  // The range becomes far memory, reserved but not committed; what was mapped there is lost. In the far space it must
  // be reserved and foreign. Outside, page numbers are lent for [around, around_end) as far as possible: a range that
  // will be adopted in parts, so that its pages have successive numbers. ENOSPC: no page numbers are left.
  Status adopt(std::byte* address, size_t bytes, std::byte* around = nullptr, std::byte* around_end = nullptr);
  // As adopt, of addresses where nothing is mapped. EEXIST: something is by now.
  Status adopt_unmapped(std::byte* address, size_t bytes);
  // The decommitted range becomes foreign; the caller maps something there, or unmaps it.
  void abandon(std::byte* address, size_t bytes);

  // The pages read as zero afterwards, and the server drops their content (MADV_DONTNEED).
  void discard(std::byte* address, size_t bytes);
  // Changes the protection of committed pages (PROT_*). -errno as Status.
  Status protect(std::byte* address, size_t bytes, int protection);
  bool is_committed(const std::byte* address, size_t bytes);
  // Makes accesses to a page that belongs to no allocation end in SIGSEGV, as they would natively. A foreign page is
  // left as it is. Async-signal-safe.
  void guard_page(uint64_t address);

  // ---- Regions: reserved ranges with their own eviction policy. At most 64. ----

  // EINVAL: overlaps another one; ENOSPC: 64 exist.
  Status add_region(std::byte* address, size_t bytes, PolicyKind policy);
  // Call before the range is released. Its near pages stay near, and are evicted by the policy in whose queues they
  // are.
  void remove_region(std::byte* address);

  // ---- fork ----

  // Whether a forked child has the far space. Without it, an access there ends in SIGSEGV.
  void inherit_in_fork(bool inherit);
  // Between them no range changes.
  void lock_for_fork() NO_THREAD_SAFETY_ANALYSIS;
  void unlock_after_fork() NO_THREAD_SAFETY_ANALYSIS;
  // Lets the kernel report faults in the child, where it dropped all registrations. -errno.
  int watch_in_child();

  // Calls visit(first, count) for each run of pages that are not foreign and whose addresses follow each other, as far
  // as the space was ever used. The caller excludes changes.
  template <typename Visit>
  void for_each_far_stretch(Visit visit) {
    auto pages = static_cast<PageIndex>(used_pages());
    for (PageIndex first = 0; first < pages;) {
      PageIndex end = first;
      while (end < pages && !table_[end].load().is_foreign() && (end == first || table_.is_followed(end - 1))) end++;
      if (end > first) visit(first, end - first);
      else end++;
      first = end;
    }
  }
  // The pages up to the last that was ever reserved.
  uint64_t used_pages() const;
  bool is_valid() const { return addresses_.is_valid(); }

 private:
  void make_accessible(std::byte* address, size_t bytes);
  template <typename Drop>
  void decommit_range(std::byte* address, size_t bytes, Drop drop);
  Status adopt_range(std::byte* address, size_t bytes, std::byte* around, std::byte* around_end, bool replace);
  Status lend(uint64_t begin, uint64_t end) REQUIRES(address_mutex_);
  bool lend_run(uint64_t begin, uint64_t end) REQUIRES(address_mutex_);
  uint64_t begin() const { return number(space_.base()); }

  FarSpace& space_;
  PageTable& table_;
  PolicySet& policies_;
  RangeOps& ranges_;
  HugePath& huge_;
  EvictorGroup& evictors_;
  FarCharge charge_;

  Mutex address_mutex_;       // guards also changes of the ranges of policies_
  SpaceAllocator addresses_;  // guarded by it, but for a fork and checks, when no thread changes it
  uint64_t lent_bytes_ GUARDED_BY(address_mutex_) = 0;
  bool inherit_in_fork_ GUARDED_BY(address_mutex_) = true;
  Mutex protection_mutex_;                        // guard_page() protects no page that is committed or abandoned
  std::atomic<bool> protections_changed_{false};  // some page may not be readable and writable
};

}  // namespace farside::pager
