// Twins: copies of near pages as the far side has them, made before the first write, so that at egress a comparison
// finds the lines that have changed and only they are sent. What coming hardware is to tell (Kona 4.2, 4.4), in
// software.
//
// A twin belongs to its page: whoever owns the page (docs/internals/page_states.md) makes, compares and ends it. A near
// dirty page has one or none; all others have none. They are near memory and count as such: what twins take, pages
// lose.
//
// Whether a page gets one: with WriteBack::kLine always, up to one for each near page. With kAuto where a page by its
// lines saves more of the link and of the evictor than copying and comparing it takes, as measured of late: up to one
// for four near pages, or one for each where the gain is twice the cost. Else the pages of one while in 16 get one, so
// that a change is noticed. Async-signal-safe, all of it.
#pragma once
#include <atomic>

#include "abi/options.h"
#include "base/near.h"
#include "base/sync.h"
#include "pager/frames.h"
#include "pager/lines.h"
#include "pager/page_word.h"

namespace farside::pager {

class Twins : public NearObject {
 public:
  Twins(WriteBack mode, uint64_t pages, const Frames& frames);
  ~Twins();
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;

  bool enabled() const { return mode_ != WriteBack::kPage; }
  // Kept for each page of far space that is used.
  size_t entry_bytes() const { return enabled() ? sizeof *slots_ : 0; }
  // Before the page's first write, by its owner: content is what the far side has. Threads with the same number meet on
  // a lock.
  void make(PageIndex page, const std::byte* content, unsigned thread);
  bool has(PageIndex page) const {
    return chunk_count_.load(std::memory_order_acquire) > 0 && slots_[page].load(std::memory_order_relaxed) != 0;
  }
  // The lines in which `now` differs. The twin ends. `next` is the page asked for next, if any.
  uint64_t changes(PageIndex page, const std::byte* now, PageIndex next);
  void drop(PageIndex page);

  // ---- Measured, for kAuto; by evictors ----

  // Writes over this link cost something: far memory is not this machine's.
  void set_remote(bool remote) { remote_.store(remote, std::memory_order_relaxed); }
  enum Method : unsigned { kWhole, kByLines };
  // What an evictor itself took to send so many pages; to compare them, too, if by lines.
  void note_handled(Method method, uint64_t pages, uint64_t ticks);
  // For so long a request with so many pages was on its way, and none before it.
  void note_carried(Method method, uint64_t pages, uint64_t ticks);

 private:
  static constexpr unsigned kShards = 16;
  static constexpr uint32_t kChunk = 64;  // twins taken from the near allocator at a time

  // Free twins, linked through their first bytes. Slots are numbered from 1; 0: none.
  struct alignas(kCacheLine) Shard {
    SpinLock lock;  // guards free
    uint32_t free = 0;
  };

  enum Gain : unsigned { kNone, kSome, kMuch };

  bool wants() const;
  uint64_t most() const;
  uint32_t take(Shard& shard);
  void add_chunk(Shard& shard);
  void give(uint32_t slot);
  std::byte* at(uint32_t slot) const { return chunks_[(slot - 1) / kChunk].twins + (slot - 1) % kChunk * kPageSize; }
  void decide();

  const WriteBack mode_;
  const uint64_t pages_;
  const Frames& frames_;
  std::atomic<uint32_t>* slots_ = nullptr;  // of each page of far space
  Shard shards_[kShards];
  struct Chunk {
    std::byte* twins;
    Shard* shard;  // that took it from the near allocator, and gets its twins back
  };
  SpinLock chunks_lock_;  // guards the adding of chunks
  Chunk* chunks_ = nullptr;
  std::atomic<uint32_t> chunk_count_{0};

  std::atomic<bool> remote_{false};
  std::atomic<unsigned> gain_{kSome};  // of a twin
  // Averages of late, in ticks for a page; a change that is lost does no harm.
  std::atomic<uint32_t> handled_[2] = {}, carried_[2] = {}, copy_{0};
};

}  // namespace farside::pager
