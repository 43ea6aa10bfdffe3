#include "server/memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/bits.h"
#include "base/os.h"
#include "server/memory/file_io.h"
#include "server/memory/guarded.h"

namespace farside::server {

namespace {

// Of all files together. More would leave too little for the server itself.
constexpr uint64_t kMaxMappedBytes = uint64_t{96} << 40;
std::atomic<uint64_t> g_mapped_bytes{0};

// The first write to a page through the mapping is a fault, which costs more than its part of a large system call.
constexpr size_t kMaxWriteInPlace = 16 * 1024;

// The address space that one page of page table entries maps.
constexpr uint64_t kPageTableSpan = wire::kPageBytes / sizeof(uint64_t) * wire::kPageBytes;
static_assert(wire::kSlabBytes % kPageTableSpan == 0);

// Aligned to the span of a page table, so that no slab shares a table with its neighbour. Null: there is no room.
std::byte* map_file(int fd, uint64_t bytes) {
  long at = os::map_aligned(bytes, kPageTableSpan, PROT_NONE);
  if (os::is_error(at)) return nullptr;
  auto* place = reinterpret_cast<std::byte*>(at);
  long r = os::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
  if (!os::is_error(r)) return place;
  os::munmap(place, bytes);
  return nullptr;
}

}  // namespace

MemoryFile::~MemoryFile() {
  unmap();
  if (trailer_) os::munmap(trailer_, sizeof *trailer_);
  if (fd_ >= 0) os::close(fd_);
}

int MemoryFile::create(uint64_t bytes, Compression compression, Overflow* overflow) {
  RamShare share(overflow);
  ram_.swap(share);
  fd_ = os::sealed_memfd("farside-region", bytes + sizeof *trailer_);
  if (fd_ < 0) return fd_;
  long r = os::mmap(nullptr, sizeof *trailer_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(bytes));
  if (os::is_error(r)) return static_cast<int>(r);
  trailer_ = reinterpret_cast<wire::RegionTrailer*>(r);
  bytes_ = bytes;
  slabs_ = SlabSet(bytes);
  set_live_overlays(0);  // allocates the trailer's page, which stored_bytes() subtracts
  if (compression != Compression::kOff) return PackedFile::create(fd_, bytes, compression, overflow, &packed_);
  map();
  return 0;
}

void MemoryFile::map() {
  if (g_mapped_bytes.fetch_add(bytes_) + bytes_ > kMaxMappedBytes) {
    g_mapped_bytes -= bytes_;
    return;
  }
  mapping_ = map_file(fd_, bytes_);
  if (!mapping_) {
    g_mapped_bytes -= bytes_;
    return;
  }
  os::madvise(mapping_, bytes_, MADV_DONTFORK);  // processes that the server starts do not see it
  os::madvise(mapping_, bytes_, MADV_DONTDUMP);
  install_guard();
  StoredPages none(bytes_ / wire::kPageBytes);
  stored_.swap(none);
}

void MemoryFile::unmap() {
  if (!mapping_) return;
  os::munmap(mapping_, bytes_);
  g_mapped_bytes -= bytes_;
  mapping_ = nullptr;
  StoredPages none;
  stored_.swap(none);
}

// A slab without data keeps no page tables, else a client could make the server store them without end.
void MemoryFile::release_tables(uint64_t slab) {
  uint64_t bytes = std::min(wire::kSlabBytes, bytes_ - slab);
  long r = os::mmap(mapping_ + slab, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_,
                    static_cast<off_t>(slab));
  if (os::is_error(r)) return unmap();
  os::madvise(mapping_ + slab, bytes, MADV_DONTFORK);
  os::madvise(mapping_ + slab, bytes, MADV_DONTDUMP);
}

int MemoryFile::read(uint64_t offset, void* to, size_t bytes) const {
  if (packed_) return packed_->read(offset, to, bytes);
  const std::byte* from = view(offset, bytes);
  if (from && guarded([=] { copy_shared(to, from, bytes); })) return 0;
  return read_file(fd_, offset, to, bytes);
}

int MemoryFile::write(uint64_t offset, const void* from, size_t bytes) {
  bool in_place = bytes <= kMaxWriteInPlace && is_mapped(offset, bytes);
  if (in_place && guarded([=, this] { copy_shared(mapping_ + offset, from, bytes); })) return 0;
  int r = write_new(offset, from, bytes);
  if (r == 0 && mapping_) stored_.add(offset / wire::kPageBytes, end_page(offset, bytes));
  return r;
}

int MemoryFile::write_new(uint64_t offset, const void* from, size_t bytes) {
  note_written(offset, bytes);
  return packed_ ? packed_->write(offset, from, bytes) : write_file(fd_, offset, from, bytes);
}

void MemoryFile::note_written(uint64_t offset, uint64_t bytes) {
  for (uint64_t at = align_down(offset, wire::kSlabBytes); at < offset + bytes; at += wire::kSlabBytes) slabs_.add(at);
}

uint64_t MemoryFile::note_data(uint64_t from, uint64_t slabs) {
  uint64_t at = from;
  for (; slabs > 0 && (at = next_data(at)) < bytes_; slabs--) {
    slabs_.add(at);
    at = align_down(at, wire::kSlabBytes) + wire::kSlabBytes;
  }
  return at;
}

int MemoryFile::punch(uint64_t offset, uint64_t bytes) {
  if (mapping_) stored_.remove(offset / wire::kPageBytes, end_page(offset, bytes));
  int r = packed_ ? packed_->discard(offset, bytes) : os::punch_hole(fd_, offset, bytes);
  if (r < 0) return r;
  for (uint64_t at = slabs_.next(offset); at < offset + bytes; at = slabs_.next(at + wire::kSlabBytes)) {
    if (next_data(at) < at + wire::kSlabBytes) continue;
    slabs_.remove(at);
    if (mapping_) release_tables(at);
  }
  return r;
}

bool MemoryFile::free_some(uint64_t bytes) {
  uint64_t at = next_stored(0);
  if (at >= bytes_) return packed_ && packed_->free_some(bytes);
  int r = os::punch_hole(fd_, at, std::min(bytes, bytes_ - at));
  settle_ram();
  return r == 0 && (packed_ || next_stored(at) < bytes_);
}

MemoryFile MemoryFile::duplicate() const {
  MemoryFile other;
  other.fd_ = os::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  other.bytes_ = bytes_;
  return other;
}

// What the kernel uses for the memory file.
uint64_t MemoryFile::memory_bytes() const { return saturating_sub(file_memory(fd_), sizeof *trailer_); }

uint64_t MemoryFile::packed_bytes() const { return packed_ ? packed_->packed_pages() * kPageSize : 0; }

MemoryFile::Stored MemoryFile::stored() const {
  uint64_t memory = memory_bytes(), packed = packed_bytes();
  if (!packed_) return {memory, memory};
  uint64_t overflow = std::min(packed, packed_->overflow_pages() * kPageSize);
  return {memory + packed, memory + packed_->stored_bytes(), packed - overflow, packed_->zstd_pages() * kPageSize,
          overflow};
}

bool MemoryFile::has_ram_for(uint64_t bytes) {
  if (!ram_.overflow() || ram_.try_add(bytes)) return true;
  settle_ram();
  return ram_.try_add(bytes);
}

// Page by page where they are not stored for certain, with SEEK_DATA only: SEEK_HOLE examines every page up to the next
// hole, which may be the whole file, while SEEK_DATA returns at once when there is data at the offset.
uint64_t MemoryFile::missing_bytes(uint64_t offset, uint64_t bytes) const {
  uint64_t at = align_down(offset, kPageSize), end = align_up(offset + bytes, kPageSize), missing = 0;
  while (at < end) {
    if (is_mapped(at, kPageSize)) {
      at += kPageSize;
      continue;
    }
    uint64_t data = std::min(next_data(at), end);
    missing += data - at;
    at = data + kPageSize;
  }
  return missing;
}

uint64_t MemoryFile::next_data(uint64_t from) const {
  uint64_t stored = next_stored(from);
  return packed_ ? packed_->next_packed(from, stored) : stored;
}

uint64_t MemoryFile::next_stored(uint64_t from) const {
  if (from >= bytes_) return bytes_;
  off_t data = lseek(fd_, static_cast<off_t>(from), SEEK_DATA);
  return data < 0 ? bytes_ : std::min(static_cast<uint64_t>(data), bytes_);
}

uint64_t MemoryFile::next_used(uint64_t from) const {
  if (from >= bytes_) return bytes_;
  return std::min(next_data(from), std::max(from, slabs_.next(from)));
}

void MemoryFile::set_live_overlays(uint64_t count) {
  __atomic_store_n(&trailer_->live_overlays, count, __ATOMIC_RELEASE);
}

}  // namespace farside::server
