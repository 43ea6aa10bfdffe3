// The statistics of a program's memory accesses from which its behaviour with less near memory is predicted, for blocks
// of several sizes and several shares of near memory. Not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "tools/plan/reuse/near_model.h"
#include "tools/plan/reuse/shards.h"

namespace farside::plan {

inline constexpr unsigned kBlockBits[] = {6, 8, 10, 12, 14, 16, 18, 21};  // 64 B to 2 MiB
inline constexpr unsigned kLineBits = 6, kPageBits = 12;
// The shares of near memory, in percent.
std::vector<unsigned> predicted_shares();

class Observation {
 public:
  Observation();

  // An access to memory that may be evicted. An access across two lines counts as two.
  void access(uint64_t address, unsigned bytes, bool write) {
    touch(address >> kLineBits, write);
    uint64_t end = (address + bytes - 1) >> kLineBits;
    if (end != address >> kLineBits) touch(end, write);
  }
  // An access to memory that always stays near: stacks, code, data of files.
  void access_to_near() { always_near_++; }

  double accesses() const { return static_cast<double>(accesses_ + always_near_); }
  double far_accesses() const { return static_cast<double>(accesses_); }
  double heap_bytes() const { return near_.pages() * (1 << kPageBits); }  // of the accessed pages
  const NearModel& near() const { return near_; }
  // The share of the blocks of that size that is sampled.
  double rate(unsigned block_bits) const { return curve(block_bits).rate(); }

  // Accesses that miss in an LRU cache of `bytes` in blocks of that size, without first accesses.
  Estimate misses(unsigned block_bits, double bytes) const;
  // First accesses to blocks.
  double first_touches(unsigned block_bits) const { return curve(block_bits).blocks(); }

 private:
  void touch(uint64_t line, bool write) {
    accesses_++;
    if (line != line_ || (write && !written_)) move_to(line, write);
  }
  void move_to(uint64_t line, bool write);
  const Shards& curve(unsigned block_bits) const;

  std::vector<Shards> curves_;  // in the order of kBlockBits
  NearModel near_;
  uint64_t line_ = UINT64_MAX;  // of the last access
  bool written_ = false;        // its page was written since the last change of page
  uint64_t accesses_ = 0, always_near_ = 0;
};

}  // namespace farside::plan
