// One thread's reads from far memory: its channel, and up to kMaxReads reads of pages in flight on it. A read may stay
// in flight while its thread runs the program (the next window of a stream, the page of a suspended fiber), so other
// threads may wait for its pages, which are in kFetching. Therefore the queue has a lock. The thread itself takes it
// while it works on the queue; a thread that waits for a page of a read takes it to complete the read
// (FetchPath::complete_arrived).
#pragma once
#include <atomic>
#include <span>

#include "base/bits.h"
#include "base/log.h"
#include "base/near.h"
#include "base/sync.h"
#include "pager/huge/frame_pool.h"
#include "pager/pages/page_table.h"
#include "pager/pages/page_word.h"
#include "pager/thread/prefetch.h"
#include "pager/thread/subpage_queue.h"
#include "remote/remote_store.h"

namespace farside::pager {

// Pages claimed for one read: the page of the fault first, then those fetched ahead.
struct Claim {
  static constexpr unsigned kMaxPages = Prefetcher::kMaxWindow + 1;
  PageIndex pages[kMaxPages];
  unsigned count = 0;
  bool write = false;  // mapped writable, and dirty
  bool ahead = false;  // no thread has requested any of the pages; a fault on the first continues their stream

  bool is_full() const { return count == kMaxPages; }
};

// The content of the pages of a claim: one after the other in its order (packed), or each at its place in the far
// region.
struct Content {
  const std::byte* bytes = nullptr;
  bool packed = true;
  const std::byte* of(const Claim& claim, unsigned i) const {
    return bytes + (packed ? i * kPageSize : PageTable::far_of(claim.pages[i]));
  }
};

// A read in flight, or one that has arrived and whose pages are not all mapped yet.
struct Fetch : Claim {
  enum class Progress : uint8_t { kFree, kInFlight, kArrived };
  Progress progress = Progress::kFree;
  bool first_mapped = false;  // pages[0] is mapped already
  unsigned mapped = 1;        // pages [1, mapped) are mapped, too
  uint64_t sequence = 0;
  transport::Token token = 0;
  Content content;
  std::byte* buffer = nullptr;  // `room` pages, unless the pages are read in place; kept for the next read
  unsigned room = 0;

  bool is_free() const { return progress == Progress::kFree; }
  bool waits_for(PageIndex page) const {
    if (pages[0] == page) return !first_mapped;
    for (unsigned i = mapped; i < count; i++) {
      if (pages[i] == page) return true;
    }
    return false;
  }
  // Makes the buffer large enough for the pages of the claim.
  void make_room() {
    if (room >= count) return;
    if (buffer) near_free(buffer, room * kPageSize);
    room = count <= 1 ? 1 : (count <= 8 ? 8 : kMaxPages);
    buffer = static_cast<std::byte*>(near_alloc(room * kPageSize));
  }
};

// A whole huge page that is read into a huge frame. Its pages are in kFetching, but for those that were near.
struct HugeFetch {
  static constexpr unsigned kMaxRequests = 4;
  static constexpr unsigned kRequestPages = kHugePages / kMaxRequests;
  HugeIndex huge = 0;
  Slot slot = -1;            // of the frame pool; -1: this fetch is free
  bool write = false;        // mapped writable, and dirty
  bool hot = false;          // it returned soon after its eviction
  HugeBits claimed;          // pages that were claimed before the read
  HugeBits empty;            // of these, pages that were never touched
  HugeBits near;             // pages that were near, and are owned since the read is complete (kEvicting)
  uint64_t* sums = nullptr;  // where the sums of its pages are recorded, or nullptr
  unsigned filled = 0;       // pages that are in the frame
  transport::Token tokens[kMaxRequests] = {};  // 0: has arrived, or there is none
  uint64_t sequence = 0;

  bool is_free() const { return slot < 0; }
  bool is_filled() const { return filled == kHugePages; }
};

class CAPABILITY("lock") ReadQueue {
 public:
  // Besides these and the sub-page reads, the channel has room for one more request: a discard or write that is waited
  // for.
  static constexpr unsigned kMaxReads = transport::kMaxInFlight - SubpageQueue::kMaxInFlight - 1;
  static constexpr unsigned kMaxHuge = 4;

  bool try_lock() TRY_ACQUIRE(true) { return !locked_.exchange(true, std::memory_order_acquire); }
  bool is_locked() const { return locked_.load(std::memory_order_relaxed); }
  // Held for a few system calls or one reply of the server; never while a frame or a page of another thread is awaited.
  void lock() ACQUIRE() {
    for (unsigned spins = 0; !try_lock(); spins++) {
      if (spins < 1000) cpu_relax();
      else os::sched_yield();
    }
  }
  void unlock() RELEASE() {
    FARSIDE_DCHECK(is_locked());
    locked_.store(false, std::memory_order_release);
  }

  // Whether reads proceed while no thread polls for them. Takes the lock.
  bool proceeds_alone(remote::RemoteStore* store) {
    LockGuard lock(*this);
    return channel(store).proceeds_alone();
  }

  // Opens the channel at first use. The caller holds the lock, here and below.
  transport::Channel& channel(remote::RemoteStore* store);
  // Where far memory can be read in place: prefetches the page into the processor's cache while the caller prepares to
  // map it. Called without the lock; the channel exists as long as its thread.
  void prefetch(uint64_t far) const {
    if (!channel_) return;
    transport::Mapping mapping = channel_->mapping();
    if (!mapping.immediate) return;
    for (size_t i = 0; i < kPageSize; i += kCacheLine) __builtin_prefetch(mapping.base + far + i);
  }
  Fetch* find(PageIndex page);
  // The read that was started first, or nullptr.
  Fetch* oldest();
  // The oldest window ahead with unmapped pages besides its first one, or nullptr.
  Fetch* ahead();
  std::span<Fetch> fetches() { return {fetches_, used_}; }
  // A free one, or nullptr if kMaxReads are in flight.
  Fetch* free_fetch();

  // Fetches of whole huge pages, guarded by the same lock. Their requests take the place of other reads.
  std::span<HugeFetch> huge() { return huge_; }
  // A free one, or nullptr. requests: how many it will have in flight.
  HugeFetch* free_huge(unsigned requests);
  HugeFetch* find_huge(HugeIndex huge);
  // The oldest one that is not filled, or nullptr.
  HugeFetch* unfilled_huge();
  void started(HugeFetch& fetch, Slot slot, unsigned requests);
  void request_arrived() {
    FARSIDE_CHECK(huge_requests_ > 0);
    huge_requests_--;
  }
  void ended(HugeFetch& fetch);

  // Reads of parts of pages, guarded by the same lock.
  SubpageQueue& subpage_reads() { return subpage_reads_; }
  void queued(SubpageReadGroup& read) {
    FARSIDE_DCHECK(is_locked() && !read.ranges.empty());
    subpage_reads_.push(read);
    reading_.fetch_add(1, std::memory_order_acq_rel);
  }
  void subpage_reads_done(size_t reads) {
    unsigned before = reading_.fetch_sub(static_cast<unsigned>(reads), std::memory_order_acq_rel);
    FARSIDE_CHECK(before >= reads);
  }

  // The read of `fetch` begins. It is also counted in an atomic, so that other threads can check for reads without the
  // lock.
  void started(Fetch& fetch, Fetch::Progress progress) {
    FARSIDE_DCHECK(is_locked() && fetch.is_free() && progress != Fetch::Progress::kFree);
    fetch.progress = progress;
    fetch.first_mapped = false;
    fetch.mapped = 1;
    fetch.sequence = ++sequence_;
    reading_.fetch_add(1, std::memory_order_acq_rel);
  }
  void ended(Fetch& fetch) {
    FARSIDE_DCHECK(is_locked() && !fetch.is_free() && fetch.first_mapped);
    fetch.progress = Fetch::Progress::kFree;
    unsigned before = reading_.fetch_sub(1, std::memory_order_acq_rel);
    FARSIDE_CHECK(before > 0);
  }
  bool is_reading() const { return reading_.load(std::memory_order_acquire) > 0; }

  // An evictor should map the window in flight. Read without the lock.
  std::atomic<bool> wants_mapping{false};

  // Closes the channel and frees the buffers. No read is in flight, or no thread will ever wait for its pages. Takes
  // the lock.
  void close(remote::RemoteStore* store);
  // In the child of a fork: the store has closed the channel, and no read was in flight at the fork.
  void reset_in_child() { channel_ = nullptr; }

 private:
  std::atomic<bool> locked_{false};
  std::atomic<unsigned> reading_{0};
  transport::Channel* channel_ = nullptr;
  uint64_t sequence_ = 0;
  unsigned used_ = 0;  // number of fetches_ that were ever used
  SubpageQueue subpage_reads_;
  Fetch fetches_[kMaxReads];
  HugeFetch huge_[kMaxHuge];
  unsigned huge_requests_ = 0;  // of all huge pages, in flight
};

using ReadQueueLock = LockGuard<ReadQueue>;

}  // namespace farside::pager
