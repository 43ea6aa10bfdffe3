// One thread's line to far memory: its channel, and the reads that are under way on it. A read goes on while its thread
// runs the program (the next window of a stream, a fiber's page), so its pages, in kFetching, may be waited for by
// others. Therefore a line has a lock that outlives no fault: the thread itself holds it while it works on the line,
// and whoever waits for a page of a read may take it and finish the read (FaultPath::complete_arrived).
#pragma once
#include <atomic>
#include <span>

#include "base/bits.h"
#include "base/near.h"
#include "base/sync.h"
#include "pager/page_table.h"
#include "pager/page_word.h"
#include "pager/prefetch.h"
#include "remote/remote_store.h"

namespace farside::pager {

// Pages claimed for one read: the page that was asked for first, the others ahead of it.
struct Claim {
  static constexpr unsigned kMaxPages = Prefetcher::kMaxWindow + 1;
  PageIndex pages[kMaxPages];
  unsigned count = 0;
  bool write = false;  // mapped writable, and dirty
  bool hot = false;    // the first page starts hot
  bool ahead = false;  // nobody has asked for any of the pages yet; a fault on the first continues their stream

  bool is_full() const { return count == kMaxPages; }
};

// Where the pages of a claim are: one after another in its order (packed), or each at its place in the far region.
struct Content {
  const std::byte* bytes = nullptr;
  bool packed = true;
  const std::byte* of(const Claim& claim, unsigned i) const {
    return bytes + (packed ? i * kPageSize : PageTable::far_of(claim.pages[i]));
  }
};

// A read under way, or one that has arrived and whose pages are not all mapped yet.
struct Fetch : Claim {
  enum class Progress : uint8_t { kFree, kInFlight, kArrived };
  Progress progress = Progress::kFree;
  bool first_mapped = false;  // pages[0] is mapped already
  unsigned mapped = 1;        // and so are pages [1, mapped)
  uint64_t sequence = 0;
  transport::Token token = 0;
  Content content;
  std::byte* buffer = nullptr;  // where the pages land unless they are read in place, `room` of them; kept for the next
  unsigned room = 0;

  bool is_free() const { return progress == Progress::kFree; }
  bool waits_for(PageIndex page) const {
    if (pages[0] == page) return !first_mapped;
    for (unsigned i = mapped; i < count; i++) {
      if (pages[i] == page) return true;
    }
    return false;
  }
  // Makes room for the pages of the claim.
  void make_room() {
    if (room >= count) return;
    if (buffer) near_free(buffer, room * kPageSize);
    room = count <= 1 ? 1 : (count <= 8 ? 8 : kMaxPages);
    buffer = static_cast<std::byte*>(near_alloc(room * kPageSize));
  }
};

// Somebody waits for parts of pages that stay far. Lives on its reader's stack; done is set under the line's lock.
struct SubpageReadGroup {
  std::span<const transport::Segment> segments;
  std::atomic<bool> done{false};
  SubpageReadGroup* next = nullptr;
};

// Reads of pieces by several fibers that go out as one request, since it is requests that cost.
class SubpageReadQueue {
 public:
  static constexpr size_t kMaxSegments = 64;  // in one request
  static constexpr size_t kMaxUnderWay = 4;   // requests
  static constexpr size_t kEnough = 16;       // segments for which a request goes out beside two others

  bool empty() const { return !first_ && in_flight_ == 0; }
  bool has_queued() const { return first_; }
  bool is_full() const { return in_flight_ == kMaxUnderWay; }
  void push(SubpageReadGroup& read) {
    read.next = nullptr;
    (first_ ? last_->next : first_) = &read;
    last_ = &read;
    queued_ += read.segments.size();
  }
  bool should_send() const {
    if (!first_ || in_flight_ == kMaxUnderWay) return false;
    return in_flight_ < 2 || queued_ >= kEnough;
  }
  // Sends the first reads of the queue together. 0 or -errno; on an error they stay queued.
  int send(transport::Channel& channel);
  // Waits for the oldest request, or asks whether it has come. 1: it has; its reads are done. 0 or -errno: not.
  int finish_oldest(transport::Channel& channel, bool wait, uint64_t timeout_ns, size_t* reads_done);

 private:
  struct Request {
    transport::Token token;
    SubpageReadGroup* first;
    SubpageReadGroup* last;
  };
  SubpageReadGroup* first_ = nullptr;
  SubpageReadGroup* last_ = nullptr;
  size_t queued_ = 0, in_flight_ = 0;
  Request requests_[kMaxUnderWay] = {};  // the oldest first
};

class ReadQueue {
 public:
  // Beside these and the pieces, the channel has room for one request more: a discard or write that is waited for.
  static constexpr unsigned kMaxReads = transport::kMaxInFlight - SubpageReadQueue::kMaxUnderWay - 1;

  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  // Held for a few system calls at most, never while a frame or a page of somebody else is waited for.
  void lock() {
    for (unsigned spins = 0; !try_lock(); spins++) {
      if (spins < 1000) cpu_relax();
      else os::sched_yield();
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

  // Opens the channel at first use. The lock must be held, here and below.
  transport::Channel& channel(remote::RemoteStore* store);
  // Has the page on its way into the processor's cache where far memory can be read in place, while the caller does
  // what else is to be done before the kernel copies it. Without the lock: the channel stays while its thread does.
  void prefetch(uint64_t far) const {
    const std::byte* page = channel_ ? channel_->direct(far, kPageSize) : nullptr;
    for (size_t i = 0; page && i < kPageSize; i += kCacheLine) __builtin_prefetch(page + i);
  }
  Fetch* find(PageIndex page);
  // The one that was started first, or nullptr.
  Fetch* oldest();
  // The oldest window ahead with pages to map beside its first one, or nullptr.
  Fetch* ahead();
  std::span<Fetch> fetches() { return {fetches_, used_}; }
  // A free one, or nullptr while kMaxReads are under way.
  Fetch* free_fetch();

  // With the lock.
  SubpageReadQueue& subpage_reads() { return subpage_reads_; }
  void queued(SubpageReadGroup& read) {
    subpage_reads_.push(read);
    reading_.fetch_add(1, std::memory_order_acq_rel);
  }
  void subpage_reads_done(size_t reads) { reading_.fetch_sub(static_cast<unsigned>(reads), std::memory_order_acq_rel); }

  // The claim is under way now. It is counted apart, so that others can look without the lock.
  void started(Fetch& fetch, Fetch::Progress progress) {
    fetch.progress = progress;
    fetch.first_mapped = false;
    fetch.mapped = 1;
    fetch.sequence = ++sequence_;
    reading_.fetch_add(1, std::memory_order_acq_rel);
  }
  void ended(Fetch& fetch) {
    fetch.progress = Fetch::Progress::kFree;
    reading_.fetch_sub(1, std::memory_order_acq_rel);
  }
  bool is_reading() const { return reading_.load(std::memory_order_acquire) > 0; }

  // Somebody else should map the window that is under way. Looked at without the lock.
  std::atomic<bool> wants_mapping{false};

  // No read is under way any more, or nobody will ever ask for its pages. Takes the lock.
  void close(remote::RemoteStore* store);
  // The store has closed the channel. No read was under way at the fork.
  void reset_in_child() { channel_ = nullptr; }

 private:
  std::atomic<bool> locked_{false};
  std::atomic<unsigned> reading_{0};
  transport::Channel* channel_ = nullptr;
  uint64_t sequence_ = 0;
  unsigned used_ = 0;  // fetches that were ever in use
  SubpageReadQueue subpage_reads_;
  Fetch fetches_[kMaxReads];
};

using ReadQueueLock = LockGuard<ReadQueue>;

}  // namespace farside::pager
