// Regions in tests: requests that are finished, however many pieces they take.
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "server/regions/memory_pool.h"

namespace farside::server {

inline constexpr uint64_t kSlab = wire::kSlabBytes;
inline constexpr uint64_t kPage = wire::kPageBytes;

// A sequence number that is larger than all before, so that no reservation is taken for a repetition.
inline uint64_t next() {
  static uint64_t sequence = 0;
  return ++sequence;
}

class List {
 public:
  explicit List(std::initializer_list<wire::ByteRange> ranges) : ranges_(ranges) {}
  operator wire::RangeList() const {
    return {reinterpret_cast<const std::byte*>(ranges_.data()), static_cast<uint32_t>(ranges_.size())};
  }

 private:
  std::vector<wire::ByteRange> ranges_;
};

// Calls piece(&progress) until the request is finished.
template <typename Next>
int all_pieces(Next piece) {
  Progress progress;
  int r;
  while ((r = piece(&progress)) == kMore) {}
  return r;
}
inline int write_list(Region* region, const wire::RangeList& list, const void* data) {
  return all_pieces([&](Progress* p) { return region->write(list, static_cast<const std::byte*>(data), p); });
}
inline int read_list(Region* region, const wire::RangeList& list, void* out) {
  return all_pieces([&](Progress* p) { return region->read(list, static_cast<std::byte*>(out), p); });
}
inline int discard_list(Region* region, const wire::RangeList& list) {
  return all_pieces([&](Progress* p) { return region->discard(list, p); });
}
inline int write(Region* region, uint64_t offset, const std::vector<uint8_t>& data) {
  return write_list(region, List{{offset, data.size()}}, data.data());
}
inline int write(Region* region, uint64_t offset, uint64_t bytes, uint8_t value) {
  return write(region, offset, std::vector<uint8_t>(bytes, value));
}
inline int discard(Region* region, uint64_t offset, uint64_t bytes) {
  return discard_list(region, List{{offset, bytes}});
}
inline std::vector<uint8_t> read(Region* region, uint64_t offset, uint64_t bytes) {
  std::vector<uint8_t> out(bytes);
  EXPECT_EQ(read_list(region, List{{offset, bytes}}, out.data()), 0);
  return out;
}

inline Region* new_root(MemoryPool* pool, uint64_t bytes, uint64_t reserve) {
  Region* region = *pool->create(bytes);
  EXPECT_TRUE(pool->grow(region, reserve, next()).ok());
  return region;
}
inline Region* fork_of(MemoryPool* pool, Region* base) {
  auto child = pool->snapshot(base->name().id, base->name().secret);
  EXPECT_TRUE(child.ok()) << child.status().text();
  return *child;
}

}  // namespace farside::server
