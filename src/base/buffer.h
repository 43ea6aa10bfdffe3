// The input or output of a connection: bytes are appended at the end and consumed at the front. New memory is not
// zeroed. Used by one thread.
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>

namespace farside {

class Buffer {
 public:
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  const std::byte* data() const { return bytes_.get() + begin_; }
  size_t room() const { return capacity_ - end_; }

  // Returns space for at least `bytes` more bytes after the content; commit() appends as many as were filled in.
  std::byte* reserve(size_t bytes) {
    if (room() < bytes) make_room(bytes);
    return bytes_.get() + end_;
  }
  void commit(size_t bytes) { end_ += bytes; }
  void truncate(size_t bytes) { end_ = begin_ + bytes; }  // keeps the first `bytes`
  void append(const void* from, size_t bytes) {
    if (bytes == 0) return;  // `from` may be null
    memcpy(reserve(bytes), from, bytes);
    commit(bytes);
  }

  void consume(size_t bytes) {
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }

  // Frees the memory of an empty buffer that is larger than keep_capacity.
  void trim(size_t keep_capacity) {
    if (!empty() || capacity_ <= keep_capacity) return;
    bytes_.reset();
    capacity_ = 0;
  }

 private:
  void make_room(size_t bytes) {
    size_t used = size();
    if (used + bytes <= capacity_) {
      memmove(bytes_.get(), data(), used);
    } else {
      size_t wanted = used + bytes > 2 * capacity_ ? used + bytes : 2 * capacity_;
      auto larger = std::make_unique_for_overwrite<std::byte[]>(wanted);
      if (used > 0) memcpy(larger.get(), data(), used);
      bytes_ = std::move(larger);
      capacity_ = wanted;
    }
    begin_ = 0;
    end_ = used;
  }

  std::unique_ptr<std::byte[]> bytes_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace farside
