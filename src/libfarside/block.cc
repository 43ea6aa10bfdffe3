// Allocation functions whose large blocks are regions. Each block has a header before its first byte:
//
//   0        8        16                 64
//   +--------+--------+------------------+-----------
//   | region | bytes  | unused           | the block
//   +--------+--------+------------------+-----------
//
// region: nullptr where the header and the block come from malloc. bytes: of the block.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "farside/farside.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

namespace {

constexpr size_t kMinRegion = 64 * 1024;  // of the block; smaller ones share pages

struct alignas(64) Header {
  farside_region* region;
  size_t bytes;
};
static_assert(sizeof(Header) == 64);

Header* header_of(void* block) { return static_cast<Header*>(block) - 1; }

farside_region* create_region(const char* policy, size_t bytes) {
  farside_region* region = nullptr;
  if (farside_region_create(&region, bytes, bytes, policy) == 0) return region;
  return policy && farside_region_create(&region, bytes, bytes, nullptr) == 0 ? region : nullptr;
}

Header* large_header(const char* policy, size_t bytes) {
  farside_region* region = create_region(policy, bytes + sizeof(Header));
  if (!region) return nullptr;
  auto* header = static_cast<Header*>(farside_region_data(region));
  header->region = region;
  return header;
}

Header* small_header(size_t bytes) {
  size_t whole = (sizeof(Header) + bytes + alignof(Header) - 1) & ~(alignof(Header) - 1);
  auto* header = static_cast<Header*>(aligned_alloc(alignof(Header), whole));
  if (header) header->region = nullptr;
  return header;
}

}  // namespace

extern "C" {

FARSIDE_PUBLIC void* farside_block_malloc(const char* policy, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  Header* header = bytes < kMinRegion ? small_header(bytes) : large_header(policy, bytes);
  if (!header) return nullptr;
  header->bytes = bytes;
  return header + 1;
}

FARSIDE_PUBLIC void* farside_block_calloc(const char* policy, size_t count, size_t bytes) {
  size_t whole;
  if (__builtin_mul_overflow(count, bytes, &whole)) return nullptr;
  void* block = farside_block_malloc(policy, whole);
  if (block && !header_of(block)->region) memset(block, 0, whole);  // a new region is zero
  return block;
}

FARSIDE_PUBLIC void* farside_block_realloc(const char* policy, void* block, size_t bytes) {
  if (!block) return farside_block_malloc(policy, bytes);
  void* moved = farside_block_malloc(policy, bytes);
  if (!moved) return nullptr;
  size_t old = header_of(block)->bytes;
  memcpy(moved, block, old < bytes ? old : bytes);
  farside_block_free(policy, block, old);
  return moved;
}

FARSIDE_PUBLIC void farside_block_free(const char*, void* block, size_t) {
  if (!block) return;
  Header* header = header_of(block);
  if (header->region) farside_region_destroy(header->region);
  else free(header);
}
}
