// The memory of one region: a sparse memory file whose offsets are the far addresses, followed by a trailer page for
// clients that map the file. Bytes that were never written, or were punched out, are holes: they read as zero and use
// no memory, so a client never sees data of another one. The size of the file is sealed, so a client with its
// descriptor cannot truncate it.
//
// Pages that are stored for certain (stored_pages.h) are accessed through a mapping, without a system call. All others
// are read and written by system calls: reading a hole then allocates nothing, and a lack of memory is an error and not
// a signal. A mapped page that the machine has lost is an error of the access. There is no mapping for a file that a
// client has mapped, too, since it can discard pages, nor where address space is short, nor where pages are compressed.
//
// Threads may read and write at the same time; all other calls that are not const exclude all calls. Results of type
// int are 0 or -errno.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "server/memory/overflow.h"
#include "server/memory/packed_file.h"
#include "server/memory/slab_set.h"
#include "server/memory/stored_pages.h"
#include "wire/protocol.h"

namespace farside::server {

class MemoryFile {
 public:
  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept { swap(other); }
  MemoryFile& operator=(MemoryFile&& other) noexcept {
    swap(other);
    return *this;
  }

  // bytes: a multiple of the page size. overflow: null, or counts the RAM that it uses, and takes pages of a file that
  // is compressed.
  int create(uint64_t bytes, Compression compression = Compression::kOff, Overflow* overflow = nullptr);

  int fd() const { return fd_; }
  // The second file, with the pages that are compressed, and who compresses them; nullptr: none are.
  PackedFile* packed() const { return packed_.get(); }
  int read(uint64_t offset, void* to, size_t bytes) const;
  int write(uint64_t offset, const void* from, size_t bytes);
  int punch(uint64_t offset, uint64_t bytes);
  // Of a file that is not read any more: frees what is stored in the next `bytes` with data. Whether there is more.
  bool free_some(uint64_t bytes);
  // Another descriptor of the same memory, only for free_some(). Without a descriptor: an empty one, fd() < 0.
  MemoryFile duplicate() const;
  // Where the range can be read in place until it is discarded; nullptr: it cannot, use read(). Access by guarded().
  const std::byte* view(uint64_t offset, uint64_t bytes) const {
    return is_mapped(offset, bytes) ? mapping_ + offset : nullptr;
  }

  // A client gets the file's descriptor. Before anything is written.
  void note_shared() { unmap(); }

  // What is stored, in bytes: the size of its pages; the memory that the kernel uses for them, which is less where
  // pages are compressed or in the overflow file; the size of those that are compressed; of these, by zstd; the size of
  // those in the overflow file.
  struct Stored {
    uint64_t bytes = 0, used = 0, packed = 0, zstd = 0, overflow = 0;
    void replace(const Stored& before, const Stored& now) {
      bytes += now.bytes - before.bytes;
      used += now.used - before.used;
      packed += now.packed - before.packed;
      zstd += now.zstd - before.zstd;
      overflow += now.overflow - before.overflow;
    }
  };
  Stored stored() const;
  uint64_t stored_bytes() const { return memory_bytes() + packed_bytes(); }
  // So much of it at most is in both places at a time, because it is being compressed.
  uint64_t counted_twice() const { return packed_ ? Packer::kBatch * wire::kPageBytes : 0; }
  uint64_t used_bytes() const { return stored().used; }
  // Whether there is RAM for so much more; always, unless there is an overflow file.
  bool has_ram_for(uint64_t bytes);
  // Makes what it counts exact.
  void settle_ram() {
    if (ram_.overflow()) ram_.set(used_bytes());
  }
  // Whether all pages of the range are stored for certain.
  bool is_stored(uint64_t offset, uint64_t bytes) const { return is_mapped(offset, bytes); }
  // The size of the pages of a range that are holes.
  uint64_t missing_bytes(uint64_t offset, uint64_t bytes) const;
  // The first offset from `from` on that is not in a hole; bytes() if there is none.
  uint64_t next_data(uint64_t from) const;
  // The same, but stops at slabs that may hold data, too: punch() finds out.
  uint64_t next_used(uint64_t from) const;
  uint64_t bytes() const { return bytes_; }

  void set_live_overlays(uint64_t count);

  // The range may hold data from now on.
  void note_written(uint64_t offset, uint64_t bytes);
  // The same for what holds data from an offset on, in the next `slabs` slabs with data. Returns where to go on;
  // bytes() or more: at the end.
  uint64_t note_data(uint64_t from, uint64_t slabs);

  // Slabs that may hold data. Those that clients wrote through a mapping of the file are not known.
  const SlabSet& slabs() const { return slabs_; }
  // An upper bound of what the kernel and this object need to find the pages.
  uint64_t overhead_bytes() const {
    uint64_t for_slab = kSlabOverheadBytes + (mapping_ ? kSlabTableBytes : 0) + (packed_ ? kSlabPackedBytes : 0);
    return slabs_.memory_bytes() + stored_.memory_bytes() + slabs_.count() * for_slab;
  }

 private:
  void swap(MemoryFile& other) {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    std::swap(trailer_, other.trailer_);
    std::swap(slabs_, other.slabs_);
    std::swap(mapping_, other.mapping_);
    std::swap(packed_, other.packed_);
    stored_.swap(other.stored_);
    ram_.swap(other.ram_);
  }
  int write_new(uint64_t offset, const void* from, size_t bytes);
  uint64_t next_stored(uint64_t from) const;
  uint64_t memory_bytes() const;
  uint64_t packed_bytes() const;
  void map();
  void unmap();
  void release_tables(uint64_t slab);
  bool is_mapped(uint64_t offset, uint64_t bytes) const {
    return mapping_ && stored_.contains(offset / wire::kPageBytes, end_page(offset, bytes));
  }
  static uint64_t end_page(uint64_t offset, uint64_t bytes) {
    return (offset + bytes + wire::kPageBytes - 1) / wire::kPageBytes;
  }

  // The kernel indexes 64 pages with a node of 576 bytes, and 64 nodes with another one: for a slab at most 64 leaves
  // and the nodes above them.
  static constexpr uint64_t kSlabOverheadBytes = (64 + 5) * 576;
  // The page tables of a mapped slab: one for each 2 MiB, and a share of the one above.
  static constexpr uint64_t kSlabTableBytes = 9 * wire::kPageBytes;
  // A word for each page in the second file, and two in this process.
  static constexpr uint64_t kSlabPackedBytes = 3 * wire::kSlabBytes / wire::kPageBytes * sizeof(uint64_t);

  int fd_ = -1;
  uint64_t bytes_ = 0;  // without the trailer
  wire::RegionTrailer* trailer_ = nullptr;
  SlabSet slabs_;
  std::byte* mapping_ = nullptr;  // of the whole file; null: none
  StoredPages stored_;            // without a mapping: empty
  std::unique_ptr<PackedFile> packed_;
  RamShare ram_;
};

}  // namespace farside::server
