// The second file of a region whose cold pages are compressed: a word for each page of the region, and the pool that
// holds the compressed pages. The server creates it with the region's memory file; clients that map the memory file map
// this one, too.
//
//    0        4096                     pool_offset
//    +--------+------------------------+----------------------------------+
//    | header | table, 8 bytes a page  | pool, half as large as the region |
//    +--------+------------------------+----------------------------------+
//
// The file is sparse: the table uses memory only where pages were written, the pool where pages are stored.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace farside::packed {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kWordsInTablePage = kPageBytes / sizeof(uint64_t);

struct Header {
  uint64_t packed_pages;  // not in the memory file; each side corrects it when it changes the state of a page
  uint32_t epoch;         // PackedWord::kFirstEpoch .. kLastEpoch; the server advances it every kEpochNs
  uint32_t zero;
  uint64_t returns[kPageBytes / sizeof(uint64_t) - 2];  // of pages to the memory file, by page modulo the size
};
static_assert(sizeof(Header) == kPageBytes);

inline constexpr uint64_t kEpochNs = 250'000'000;
inline constexpr uint32_t kColdEpochs = 4;  // without an access: 1 s
inline constexpr uint32_t kStaleAge = 15;   // the same of a compressed page, in PackedWord::kEpochsOfAge: 1 min

inline constexpr uint64_t kTableOffset = sizeof(Header);
constexpr uint64_t table_bytes(uint64_t region_bytes) {
  return align_up(region_bytes / kPageBytes * sizeof(uint64_t), kPageBytes);
}
constexpr uint64_t pool_offset(uint64_t region_bytes) { return kTableOffset + table_bytes(region_bytes); }
inline constexpr uint64_t kPoolBlockBytes = 64 * 1024;
inline constexpr uint64_t kMaxPoolBytes = uint64_t{1} << 41;  // what a PackedWord can address
constexpr uint64_t pool_bytes(uint64_t region_bytes) {
  return std::min(align_up(region_bytes / 2, kPoolBlockBytes), kMaxPoolBytes);
}
constexpr uint64_t file_bytes(uint64_t region_bytes) { return pool_offset(region_bytes) + pool_bytes(region_bytes); }

}  // namespace farside::packed
