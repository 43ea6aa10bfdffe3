#include "tools/track/compare.h"

#include <bit>
#include <cstring>

namespace farside::track {
namespace {

// A plain loop, which the compiler vectorizes. A version with intrinsics was not faster (docs/guide/track.md).
unsigned bytes_differing(const std::byte* before, const std::byte* now) {
  unsigned char differing = 0;
  static_assert(kCacheLine <= UINT8_MAX);
  for (size_t i = 0; i < kCacheLine; i++) differing = static_cast<unsigned char>(differing + (before[i] != now[i]));
  return differing;
}

void count_runs(uint64_t lines, Histogram* lengths) {
  while (lines != 0) {
    lines >>= std::countr_zero(lines);
    auto length = static_cast<unsigned>(std::countr_one(lines));
    (*lengths)[length - 1]++;
    lines = length < kLinesPerPage ? lines >> length : 0;
  }
}

}  // namespace

PageChange compare_page(const std::byte* before, const std::byte* now) {
  PageChange change;
  for (unsigned line = 0; line < kLinesPerPage; line++) {
    size_t at = line * kCacheLine;
    if (memcmp(before + at, now + at, kCacheLine) == 0) continue;
    change.bytes += bytes_differing(before + at, now + at);
    change.lines |= uint64_t{1} << line;
  }
  return change;
}

void Changes::add(uint64_t address, const PageChange& change) {
  if (change.bytes == 0) return;
  bytes += change.bytes;
  auto dirty = static_cast<unsigned>(std::popcount(change.lines));
  lines += dirty;
  lines_per_page[dirty - 1]++;
  count_runs(change.lines, &run_lengths);
  pages++;
  uint64_t block = address / kBlockSize;
  if (block != last_block_) blocks++;
  last_block_ = block;
}

void Changes::add(const Changes& other) {
  bytes += other.bytes;
  lines += other.lines;
  pages += other.pages;
  blocks += other.blocks;
  written_pages += other.written_pages;
  uncompared_pages += other.uncompared_pages;
  vanished_pages += other.vanished_pages;
  for (unsigned i = 0; i < kLinesPerPage; i++) {
    lines_per_page[i] += other.lines_per_page[i];
    run_lengths[i] += other.run_lengths[i];
  }
}

uint64_t Changes::silent_pages() const {
  uint64_t others = pages + uncompared_pages + vanished_pages;
  return written_pages > others ? written_pages - others : 0;
}

uint64_t Changes::dirty_bytes(uint64_t granularity) const {
  return granularity * (granularity == kCacheLine ? lines : granularity == kPageSize ? pages : blocks);
}

double Changes::amplification(uint64_t granularity) const {
  return bytes == 0 ? 0 : static_cast<double>(dirty_bytes(granularity)) / static_cast<double>(bytes);
}

std::array<double, kLinesPerPage> cumulate(const Histogram& histogram) {
  std::array<double, kLinesPerPage> shares = {};
  uint64_t all = 0, sum = 0;
  for (uint64_t count : histogram) all += count;
  for (unsigned i = 0; i < kLinesPerPage && all > 0; i++) {
    sum += histogram[i];
    shares[i] = static_cast<double>(sum) / static_cast<double>(all);
  }
  return shares;
}

unsigned quantile_of(const Histogram& histogram, double share) {
  auto shares = cumulate(histogram);
  for (unsigned i = 0; i < kLinesPerPage; i++) {
    if (shares[i] > 0 && shares[i] >= share) return i + 1;
  }
  return 0;
}

}  // namespace farside::track
