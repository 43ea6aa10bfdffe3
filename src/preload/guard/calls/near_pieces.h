// The memory that the pieces of one system call refer to (the buffers of an iovec array, an argument of the table), in
// a form that the kernel can access as a whole:
// - pieces without far memory stay as they are;
// - up to pin_limit() bytes in up to 32 pieces are pinned;
// - everything else is copied through near memory, which the budget does not count. It is unmapped after the call.
// A piece that the program may not access up to its end keeps its fault: the copy ends at an inaccessible page where
// the piece does, so that the kernel counts what it has moved as it would natively. Async-signal-safe.
#pragma once
#include <sys/uio.h>

#include "preload/guard/thread/pins.h"

namespace farside::preload {

// What the kernel does with the memory.
enum class Use : uint8_t { kIn, kOut, kInOut };

// Bytes that a call moves as a whole. Longer messages are refused, longer transfers of streams and files are split.
inline constexpr uint64_t kMaxWhole = 16 * kMiB;

class NearPieces {
 public:
  NearPieces(Pins& pins, Use use) : pins_(pins), use_(use) {}

  // Makes from[0..count) accessible by to[0..count), lists that both exist as long as this object. 0 or -ENOMEM.
  // A page offset of a copy is the original's in its lowest bits: all that are in `alignment`, for direct I/O.
  long take(const iovec* from, iovec* to, size_t count, uint64_t alignment = 512);
  // After the call, which has moved `bytes` through the pieces from `first` to before `end`: stores what it has written
  // in the program's memory. Returns how many bytes could be stored.
  uint64_t store(size_t first, size_t end, uint64_t bytes) const;
  // Whether pieces are copied and, if so, pinned or not.
  bool copied() const { return copied_; }

 private:
  bool pin(const iovec* pieces, size_t count);
  long copy(size_t count, uint64_t alignment);

  Pins& pins_;
  Use use_;
  bool copied_ = false;
  const iovec* from_ = nullptr;
  iovec* to_ = nullptr;
};

uint64_t total_bytes(const iovec* pieces, size_t count);
bool any_far(const iovec* pieces, size_t count);

// Copies what the program's memory holds, near or far. Returns how many bytes it may read from `from` on.
uint64_t read_program(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer);
// Whether read_program would succeed. Costs nothing for far memory that is mapped, and for the program's stack.
bool is_readable(const void* address, uint64_t bytes, uint64_t stack_pointer);

// Copies a structure of the program, near or far. False: the program may not read it, or not write it there.
bool load_structure(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer);
bool store_structure(void* to, const void* from, uint64_t bytes, uint64_t stack_pointer);

// Whether the number is that of a thread of this process, or of another process in the same memory (CLONE_VM).
bool shares_memory(long number);

inline constexpr uint64_t kMaxTransfer = 0x7ffff000;  // bytes that the kernel moves in one call

// A list as the program has it, and one with what the kernel gets.
struct PieceLists {
  static constexpr size_t kOnStack = 34;
  iovec* from = few_from;
  iovec* to = few_to;
  iovec few_from[kOnStack], few_to[kOnStack];

  PieceLists() {}  // NOLINT: the lists are filled by the caller
  PieceLists(const PieceLists&) = delete;
  PieceLists& operator=(const PieceLists&) = delete;
  // Room for `count` pieces in each. False: out of memory.
  bool make(Pins& pins, size_t count) {
    if (count <= kOnStack) return true;
    from = reinterpret_cast<iovec*>(pins.map_near(2 * count * sizeof(iovec)));
    to = from + count;
    return from != nullptr;
  }
};

// A position in a list of pieces.
class Cursor {
 public:
  Cursor(const iovec* pieces, size_t count) : pieces_(pieces), count_(count) {}

  // The next bytes, at most `limit`, as a list of at most `room` pieces. Does not advance.
  size_t next(iovec* out, size_t room, uint64_t limit) const {
    size_t n = 0;
    uint64_t offset = offset_;
    for (size_t i = index_; i < count_ && n < room && limit > 0; i++, offset = 0) {
      uint64_t left = pieces_[i].iov_len - offset;
      if (left == 0) continue;
      uint64_t take = left < limit ? left : limit;
      out[n++] = {static_cast<char*>(pieces_[i].iov_base) + offset, take};
      limit -= take;
    }
    return n;
  }
  void advance(uint64_t bytes) {
    while (index_ < count_ && bytes >= pieces_[index_].iov_len - offset_) {
      bytes -= pieces_[index_++].iov_len - offset_;
      offset_ = 0;
    }
    offset_ += bytes;
  }

 private:
  const iovec* pieces_;
  size_t count_;
  size_t index_ = 0;
  uint64_t offset_ = 0;
};

// Whether the kernel refuses the list because of a length.
inline bool has_invalid_piece(const iovec* pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (static_cast<ssize_t>(pieces[i].iov_len) < 0) return true;
  }
  return false;
}

}  // namespace farside::preload
