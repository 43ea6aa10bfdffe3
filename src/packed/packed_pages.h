// Reads, writes and discards pages of a region some of which are compressed. Used by both sides: by a client that maps
// the region, and by the server for all others. The server's packer changes words meanwhile (server/memory/packer.h);
// no call waits for it, but a write to a page that it is just freeing.
//
// Thread-safe as the pager needs it: no write or discard concerns a page that another call reads or writes. All but the
// constructor is async-signal-safe, if the RawPages are.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "packed/codec.h"
#include "packed/layout.h"
#include "packed/packed_word.h"

namespace farside::packed {

// The memory file: what is not compressed. Results are 0 or -errno.
class RawPages {
 public:
  virtual int read(uint64_t offset, std::byte* to, size_t bytes) = 0;
  virtual int write(uint64_t offset, const std::byte* from, size_t bytes) = 0;
  virtual int punch(uint64_t offset, uint64_t bytes) = 0;
  // The page in this slot of the overflow file. A client that maps the region has no pages there.
  virtual int read_overflow(uint64_t slot, std::byte* page) = 0;
  // False: no packer is freeing pages now, because it does something else or has ended with the server.
  virtual bool may_be_freeing() = 0;

 protected:
  ~RawPages() = default;
};

class PackedPages {
 public:
  PackedPages() = default;
  // file: the mapping of the whole second file, which outlives this object.
  PackedPages(std::byte* file, uint64_t region_bytes)
      : header_(reinterpret_cast<Header*>(file)),
        table_(reinterpret_cast<uint64_t*>(file + kTableOffset)),
        pool_(file + pool_offset(region_bytes)),
        pool_bytes_(pool_bytes(region_bytes)) {}

  // Ranges are inside the region; results are 0 or -errno. -EIO: the compressed content of a page was damaged, or its
  // word changes without end, which only a hostile client can do. unpacker: of the calling thread.
  int read(RawPages& raw, uint64_t offset, std::byte* to, size_t bytes, Unpacker& unpacker) const;
  // Between the two, the range may be written in the memory file. After an error there is no end.
  int begin_write(RawPages& raw, uint64_t offset, size_t bytes, Unpacker& unpacker) const;
  void end_write(uint64_t offset, size_t bytes) const;
  // The range reads as zeros afterwards. table_fd: the second file, to skip what has no table.
  int discard(RawPages& raw, int table_fd, uint64_t offset, uint64_t bytes, Unpacker& unpacker) const;

  PackedWord load(uint64_t page) const { return PackedWord(word(page).load(std::memory_order_acquire)); }
  // False: the word is not `from` any more.
  bool change(uint64_t page, PackedWord from, PackedWord to) const {
    uint64_t expected = from.value();
    return word(page).compare_exchange_strong(expected, to.value(), std::memory_order_acq_rel);
  }
  uint32_t epoch() const { return std::atomic_ref(header_->epoch).load(std::memory_order_relaxed); }
  void advance_epoch() const;
  // How often this page, or another with the same counter, was brought back by the packer.
  std::atomic_ref<uint64_t> returns(uint64_t page) const {
    return std::atomic_ref(header_->returns[page % std::size(header_->returns)]);
  }
  uint64_t packed_pages() const { return std::atomic_ref(header_->packed_pages).load(std::memory_order_relaxed); }
  void count(int64_t pages) const {
    std::atomic_ref(header_->packed_pages).fetch_add(static_cast<uint64_t>(pages), std::memory_order_relaxed);
  }

 private:
  std::atomic_ref<uint64_t> word(uint64_t page) const { return std::atomic_ref(table_[page]); }
  int read_in_page(RawPages& raw, uint64_t page, size_t at, std::byte* to, size_t bytes, Unpacker& unpacker) const;
  bool unpack(RawPages& raw, PackedWord word, std::byte* page, Unpacker& unpacker) const;
  void note_use(uint64_t page, PackedWord seen) const;
  void note_use_in_pool(uint64_t page, PackedWord seen) const;
  int begin_page(RawPages& raw, uint64_t page, bool whole, Unpacker& unpacker) const;
  int begin_packed(RawPages& raw, uint64_t page, PackedWord seen, uint64_t returned, bool whole,
                   Unpacker& unpacker) const;
  template <typename Visit>
  int for_each_used(int table_fd, uint64_t first, uint64_t end, Visit visit) const;

  Header* header_ = nullptr;
  uint64_t* table_ = nullptr;
  const std::byte* pool_ = nullptr;
  uint64_t pool_bytes_ = 0;
};

}  // namespace farside::packed
