// Twins: copies of near pages as the server has them, made before the first write. When the page is evicted, a
// comparison with the twin finds the changed lines, and only these are sent. Kona (4.2, 4.4) proposes hardware for
// this.
//
// A twin belongs to its page. The owner of the page (docs/internals/page_states.md) makes, compares and frees it. A
// near dirty page has at most one; all other pages have none. Twins are near memory and count as metadata, so they take
// frames from pages.
//
// Which pages get a twin: with WriteBack::kLine all, at most one for each frame. With kAuto, where line write-back of a
// page saves more time of the link and of the evictor than copying and comparing it costs, by recent measurements: up
// to one for four frames, or one for each where the gain is twice the cost. Where it does not pay, a twin is made
// during one sixteenth of the evictions, so that a change is noticed.
//
// Thread-safe and async-signal-safe.
#pragma once
#include <atomic>

#include "abi/options.h"
#include "base/near.h"
#include "base/sync.h"
#include "pager/pages/frames.h"
#include "pager/pages/lines.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

class Twins : public NearObject {
 public:
  Twins(WriteBack mode, uint64_t pages, const Frames& frames);
  ~Twins();
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;

  bool enabled() const { return mode_ != WriteBack::kPage; }
  // Bytes of tables for each page of far space that is used.
  size_t entry_bytes() const { return enabled() ? sizeof *slots_ : 0; }
  // Called before the first write by the owner of the page; content: what the server has. thread: selects a shard,
  // whose lock is shared by threads with the same number modulo kShards.
  void make(PageIndex page, const std::byte* content, unsigned thread);
  bool has(PageIndex page) const {
    return chunk_count_.load(std::memory_order_acquire) > 0 && slots_[page].load(std::memory_order_relaxed) != 0;
  }
  // The lines in which `now` differs from the twin, which is freed. `next`: the page of the next call, whose twin is
  // prefetched.
  uint64_t changes(PageIndex page, const std::byte* now, PageIndex next);
  void drop(PageIndex page);

  // ---- Measurements for kAuto, by evictors ----

  // Whether writes have a cost to save: far memory is not memory of this machine.
  void set_remote(bool remote) { remote_.store(remote, std::memory_order_relaxed); }
  enum Method : unsigned { kWhole, kByLines };
  // The time in which an evictor sent so many pages, comparison included if by lines.
  void record_evictor_time(Method method, uint64_t pages, uint64_t ticks);
  // The time for which a request with so many pages was in flight without another one before it.
  void record_link_time(Method method, uint64_t pages, uint64_t ticks);

 private:
  static constexpr unsigned kShards = 16;
  static constexpr uint32_t kChunk = 64;  // twins taken from the near allocator at a time

  // Free twins, linked through their first bytes. Twins are numbered from 1; 0: none.
  struct alignas(kCacheLine) Shard {
    SpinLock lock;
    uint32_t free GUARDED_BY(lock) = 0;
  };

  enum Gain : unsigned { kNone, kSome, kMuch };

  bool should_make() const;
  uint64_t max_twins() const;
  uint32_t take(Shard& shard);
  void add_chunk(Shard& shard) REQUIRES(shard.lock);
  void give(uint32_t slot);
  std::byte* at(uint32_t slot) const { return chunks_[(slot - 1) / kChunk].twins + (slot - 1) % kChunk * kPageSize; }
  void decide();

  const WriteBack mode_;
  const uint64_t pages_;
  const Frames& frames_;
  std::atomic<uint32_t>* slots_ = nullptr;  // the twin of each page of far space
  Shard shards_[kShards];
  struct Chunk {
    std::byte* twins;
    Shard* shard;  // that allocated the chunk, and to which its twins are returned
  };
  SpinLock chunks_lock_;  // guards the adding of chunks
  Chunk* chunks_ = nullptr;
  std::atomic<uint32_t> chunk_count_{0};

  std::atomic<bool> remote_{false};
  std::atomic<unsigned> gain_{kSome};  // a Gain
  // Moving averages, in ticks for each page. A lost update does no harm.
  std::atomic<uint32_t> evictor_time_[2] = {}, link_time_[2] = {}, copy_{0};
};

}  // namespace farside::pager
