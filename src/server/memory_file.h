// The memory of one region: a sparse memory file in which offset means far address, and a trailer page that clients
// with a mapping read. Bytes never written, and bytes punched out, are holes: they read as zero and cost nothing, so
// no client can ever see what another one left. The server reads and writes with system calls instead of a mapping:
// a read of a hole then allocates nothing, lack of memory is an error instead of a signal, and regions cost no
// addresses. The file's size is sealed, so a client that holds its descriptor cannot cut it off under the server.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

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

  int create(uint64_t bytes);  // 0 or -errno

  int fd() const { return fd_; }
  int read(uint64_t offset, void* to, size_t bytes) const;
  int write(uint64_t offset, const void* from, size_t bytes);
  int punch(uint64_t offset, uint64_t bytes);

  // Bytes that the kernel keeps for this region.
  uint64_t stored_bytes() const;
  // Bytes of whole pages touched by the range for which the kernel keeps nothing yet.
  uint64_t missing_bytes(uint64_t offset, uint64_t bytes) const;
  // The first offset >= `from` at which there may be anything but zeros; bytes() when there is none.
  uint64_t next_data(uint64_t from) const;
  uint64_t bytes() const { return bytes_; }

  void set_live_overlays(uint64_t count);

 private:
  void swap(MemoryFile& other) {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    std::swap(trailer_, other.trailer_);
  }

  int fd_ = -1;
  uint64_t bytes_ = 0;  // without the trailer
  wire::RegionTrailer* trailer_ = nullptr;
};

}  // namespace farside::server
