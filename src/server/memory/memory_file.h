// The memory of one region: a sparse memory file whose offsets are the far addresses, followed by a trailer page for
// clients that map the file. Bytes that were never written, or were punched out, are holes: they read as zero and use
// no memory, so a client never sees data of another one. The server reads and writes by system calls instead of a
// mapping: reading a hole then allocates nothing, a lack of memory is an error and not a signal, and regions use no
// address space. The size of the file is sealed, so a client with its descriptor cannot truncate it.
//
// Threads may read, write and punch at the same time; create() and moves exclude all other calls. Results of type int
// are 0 or -errno.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

#include "server/slab_set.h"
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

  int create(uint64_t bytes);  // `bytes`: a multiple of the page size

  int fd() const { return fd_; }
  int read(uint64_t offset, void* to, size_t bytes) const;
  int write(uint64_t offset, const void* from, size_t bytes);
  int punch(uint64_t offset, uint64_t bytes);

  // The memory that the kernel uses for this region, in bytes.
  uint64_t stored_bytes() const;
  // The size of the pages of a range that are holes.
  uint64_t missing_bytes(uint64_t offset, uint64_t bytes) const;
  // The first offset from `from` on that is not in a hole; bytes() if there is none.
  uint64_t next_data(uint64_t from) const;
  uint64_t bytes() const { return bytes_; }

  void set_live_overlays(uint64_t count);

  // The range may hold data from now on.
  void note_written(uint64_t offset, uint64_t bytes);

  // Slabs that may hold data. Those that clients wrote through a mapping of the file are not known.
  const SlabSet& slabs() const { return slabs_; }
  // An upper bound of what the kernel and this object need to find the pages.
  uint64_t overhead_bytes() const { return slabs_.memory_bytes() + slabs_.count() * kSlabOverheadBytes; }

 private:
  void swap(MemoryFile& other) {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    std::swap(trailer_, other.trailer_);
    std::swap(slabs_, other.slabs_);
  }

  // The kernel indexes 64 pages with a node of 576 bytes, and 64 nodes with another one: for a slab at most 64 leaves
  // and the nodes above them.
  static constexpr uint64_t kSlabOverheadBytes = (64 + 5) * 576;

  int fd_ = -1;
  uint64_t bytes_ = 0;  // without the trailer
  wire::RegionTrailer* trailer_ = nullptr;
  SlabSet slabs_;
};

}  // namespace farside::server
