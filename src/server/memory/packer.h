// Compresses the cold pages of one region: pages that no client has read or written for a second move from the memory
// file to the pool of the second file (packed/layout.h), and the memory file has a hole there. Pages that are not used
// there for a minute, either, are compressed by zstd, and by LZ4 again if they are used after all. The packer also
// notices which pages clients have written since, and moves pages together where the pool has become sparse. Where RAM
// is nearly full, it moves pages to the overflow file, and brings back those that are used there twice (overflow.h).
// What a client changes in the shared words concerns its own content only: where pages are is known here, too.
//
// Used by one thread. Others, and clients, may access the pages meanwhile (packed/packed_pages.h).
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "abi/compression.h"
#include "packed/packed_pages.h"
#include "server/memory/overflow.h"
#include "server/memory/pool_log.h"

namespace farside::server {

class Packer {
 public:
  static constexpr unsigned kBatch = 32;  // pages that are compressed in one step

  // memory, file: descriptors of the region's two files. compression: not kOff. overflow: null or outlives this object.
  Packer(packed::PackedPages pages, int memory, int file, uint64_t region_bytes, Compression compression,
         Overflow* overflow);
  ~Packer();

  // What a step did. more: it has not yet seen all pages of this pass.
  struct Progress {
    bool more = false, packed = false;
  };
  // Does a part of the work, some tenths of a millisecond.
  Progress step();

  // Whether some page may be kPunching. A client may set that state, too, so a writer waits only while this is true.
  bool is_freeing() const { return freeing_.load(std::memory_order_acquire); }
  // In use. By the thread that calls step().
  uint64_t pool_bytes() const { return log_.used_bytes(); }
  // Pages with room in the pool or in the overflow file; some may have been written since. Thread-safe.
  uint64_t pages() const { return count_.load(std::memory_order_relaxed); }
  uint64_t overflow_pages() const { return overflow_count_.load(std::memory_order_relaxed); }
  uint64_t zstd_pages() const { return zstd_count_.load(std::memory_order_relaxed); }

 private:
  static constexpr unsigned kTablePagesAtOnce = 64;  // of the table, that one step looks at

  enum class Action : uint8_t { kNone, kPack, kRepack, kMoveOut, kBringBack };
  struct Candidate {
    uint64_t page;
    packed::PackedWord seen;
    Action action;
  };
  // A compressed page.
  struct Content {
    size_t bytes = 0;
    bool is_zstd = false;
    packed::Codec codec() const { return is_zstd ? packed::Codec::kZstd : packed::Codec::kLz4; }
    std::byte data[packed::kMaxPackedBytes];
  };
  using Slots = std::array<packed::PackedWord, packed::kWordsInTablePage>;

  bool find_table_page();
  void scan_table_page(std::vector<Candidate>* found);
  Action action_for(packed::PackedWord word, packed::PackedWord place) const;
  bool is_cold(packed::PackedWord word) const;
  bool has_to_leave(packed::PackedWord word) const;
  bool is_in_wrong_form(packed::PackedWord word) const;
  uint32_t epochs_since_use(packed::PackedWord raw) const;
  void execute(std::span<const Candidate> found);
  void pack(std::span<const Candidate> cold);
  bool pack_page(const Candidate& cold);
  static bool shrink_by_lz4(const std::byte* page, Content* content);
  bool shrink_by_zstd(const std::byte* page, Content* content);
  void repack(const Candidate& stored);
  void move_out(std::span<const Candidate> cold);
  bool begin_moving(const Candidate& cold, std::byte* page);
  bool end_moving(const Candidate& cold, bool written, uint64_t slot);
  void bring_back(const Candidate& used);
  bool read_content(packed::PackedWord place, Content* content) const;
  bool store(uint64_t page, const Content& content, packed::PackedWord before, packed::State state);
  void free_packed(std::vector<uint64_t> pages);
  void move_some(uint64_t block);
  void release_blocks();
  packed::PackedWord slot(uint64_t page) const;
  void set_slot(uint64_t page, packed::PackedWord place);
  bool change(uint64_t page, packed::PackedWord from, packed::PackedWord to) const;
  packed::PackedWord load(uint64_t page) const;

  packed::PackedPages pages_;
  const int memory_, file_;
  const uint64_t region_pages_, pool_offset_;
  const Compression compression_;
  Overflow* const overflow_;
  uint64_t next_ = 0;                                           // page
  std::unordered_map<uint64_t, std::unique_ptr<Slots>> slots_;  // by page of the table: where pages are in the pool
  PoolLog log_;
  packed::ZstdPacker zstd_;
  packed::Unpacker unpacker_;
  std::atomic<uint64_t> count_{0}, zstd_count_{0}, overflow_count_{0};
  std::atomic<bool> freeing_{false};
};

}  // namespace farside::server
