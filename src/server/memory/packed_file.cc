#include "server/memory/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/os.h"
#include "server/memory/file_io.h"
#include "server/memory/guarded.h"

namespace farside::server {

using packed::kPageBytes;

namespace {
thread_local packed::Unpacker t_unpacker;
}

int PackedFile::Memory::read(uint64_t offset, std::byte* to, size_t bytes) { return read_file(fd_, offset, to, bytes); }
int PackedFile::Memory::write(uint64_t offset, const std::byte* from, size_t bytes) {
  return write_file(fd_, offset, from, bytes);
}
int PackedFile::Memory::punch(uint64_t offset, uint64_t bytes) { return os::punch_hole(fd_, offset, bytes); }
int PackedFile::Memory::read_overflow(uint64_t slot, std::byte* page) {
  return overflow_ ? overflow_->file()->read(slot, page) : -EIO;
}

int PackedFile::create(int memory, uint64_t region_bytes, Compression compression, Overflow* overflow,
                       std::unique_ptr<PackedFile>* out) {
  uint64_t bytes = packed::file_bytes(region_bytes);
  int fd = os::sealed_memfd("farside-packed", bytes);
  if (fd < 0) return fd;
  long at = os::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (os::is_error(at)) {
    os::close(fd);
    return static_cast<int>(at);
  }
  auto* file = reinterpret_cast<std::byte*>(at);
  os::madvise(file, bytes, MADV_DONTFORK);
  os::madvise(file, bytes, MADV_DONTDUMP);
  install_guard();
  out->reset(new PackedFile(memory, fd, file, region_bytes, compression, overflow));
  return 0;
}

PackedFile::PackedFile(int memory, int fd, std::byte* file, uint64_t region_bytes, Compression compression,
                       Overflow* overflow)
    : fd_(fd),
      file_(file),
      region_bytes_(region_bytes),
      pages_(file, region_bytes),
      packer_(pages_, memory, fd, region_bytes, compression, overflow),
      memory_(memory, packer_, overflow) {
  advance_epoch();
}

PackedFile::~PackedFile() {
  os::munmap(file_, packed::file_bytes(region_bytes_));
  os::close(fd_);
}

int PackedFile::read(uint64_t offset, void* to, size_t bytes) {
  int r = 0;
  bool readable = guarded([&] { r = pages_.read(memory_, offset, static_cast<std::byte*>(to), bytes, t_unpacker); });
  return readable ? r : -EIO;
}

int PackedFile::write(uint64_t offset, const void* from, size_t bytes) {
  int r = 0;
  bool writable = guarded([&] {
    r = pages_.begin_write(memory_, offset, bytes, t_unpacker);
    if (r < 0) return;
    r = memory_.write(offset, static_cast<const std::byte*>(from), bytes);
    pages_.end_write(offset, bytes);
  });
  return writable ? r : -ENOMEM;
}

int PackedFile::discard(uint64_t offset, uint64_t bytes) {
  int r = 0;
  bool writable = guarded([&] { r = pages_.discard(memory_, fd_, offset, bytes, t_unpacker); });
  return writable ? r : -EIO;
}

// What has no table has no packed pages.
uint64_t PackedFile::next_packed(uint64_t from, uint64_t end) const {
  uint64_t words[packed::kWordsInTablePage];
  for (uint64_t page = from / kPageBytes; page * kPageBytes < end;) {
    uint64_t first = align_down(page, packed::kWordsInTablePage);
    off_t at = os::lseek(fd_, static_cast<off_t>(packed::kTableOffset + first * sizeof(uint64_t)), SEEK_DATA);
    if (at < 0) break;
    if (uint64_t data = (static_cast<uint64_t>(at) - packed::kTableOffset) / sizeof(uint64_t); data > first) {
      page = data;
      continue;
    }
    if (pread(fd_, words, sizeof words, at) != static_cast<ssize_t>(sizeof words)) break;
    for (; page < first + packed::kWordsInTablePage; page++) {
      if (packed::PackedWord(words[page - first]).is_stored()) return std::min(std::max(from, page * kPageBytes), end);
    }
  }
  return end;
}

bool PackedFile::free_some(uint64_t bytes) {
  off_t at = os::lseek(fd_, 0, SEEK_DATA);
  if (at < 0) return false;
  uint64_t all = packed::file_bytes(region_bytes_), from = static_cast<uint64_t>(at);
  return os::punch_hole(fd_, from, std::min(bytes, all - from)) == 0;
}

}  // namespace farside::server
