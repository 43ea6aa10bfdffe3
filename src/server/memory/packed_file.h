// A region's second file, for a server that compresses cold pages (packed/layout.h), and access to the region's content
// by requests: a page is in the memory file or in the pool. Results of type int are 0 or -errno. Thread-safe as
// MemoryFile, and step() may be called beside all of it by one thread.
#pragma once
#include <algorithm>
#include <memory>

#include "packed/packed_pages.h"
#include "server/memory/file_io.h"
#include "server/memory/packer.h"

namespace farside::server {

class PackedFile {
 public:
  // memory: the memory file of a new region. overflow: null, or for pages that RAM has no room for.
  static int create(int memory, uint64_t region_bytes, Compression compression, Overflow* overflow,
                    std::unique_ptr<PackedFile>* out);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  int fd() const { return fd_; }
  int read(uint64_t offset, void* to, size_t bytes);
  int write(uint64_t offset, const void* from, size_t bytes);
  int discard(uint64_t offset, uint64_t bytes);
  // The first page from `from` on that is not in the memory file, as an offset; `end` if there is none before it.
  uint64_t next_packed(uint64_t from, uint64_t end) const;

  // Compresses some cold pages.
  Packer::Progress step() { return packer_.step(); }
  void advance_epoch() { pages_.advance_epoch(); }

  // Pages that are not in the memory file; of these, by zstd, and in the overflow file.
  uint64_t packed_pages() const { return std::min(pages_.packed_pages(), packer_.pages()); }
  uint64_t zstd_pages() const { return std::min(packed_pages(), packer_.zstd_pages()); }
  uint64_t overflow_pages() const { return std::min(packed_pages(), packer_.overflow_pages()); }
  uint64_t pool_bytes() const { return packer_.pool_bytes(); }
  uint64_t stored_bytes() const { return file_memory(fd_); }
  // Of a region that ended: frees the next `bytes`. Whether there is more.
  bool free_some(uint64_t bytes);

 private:
  class Memory final : public packed::RawPages {
   public:
    Memory(int fd, const Packer& packer, const Overflow* overflow) : fd_(fd), packer_(packer), overflow_(overflow) {}
    int read(uint64_t offset, std::byte* to, size_t bytes) override;
    int write(uint64_t offset, const std::byte* from, size_t bytes) override;
    int punch(uint64_t offset, uint64_t bytes) override;
    int read_overflow(uint64_t slot, std::byte* page) override;
    bool may_be_freeing() override { return packer_.is_freeing(); }

   private:
    const int fd_;
    const Packer& packer_;
    const Overflow* const overflow_;
  };

  PackedFile(int memory, int fd, std::byte* file, uint64_t region_bytes, Compression compression, Overflow* overflow);

  const int fd_;
  std::byte* const file_;
  const uint64_t region_bytes_;
  packed::PackedPages pages_;
  Packer packer_;
  Memory memory_;
};

}  // namespace farside::server
