#include "tools/plan/observation.h"

#include <algorithm>

namespace farside::plan {
namespace {

// The limits of the samples. 32768 pages are 128 MiB; up to that, results are exact.
constexpr size_t kMaxBlocks = 32768;
constexpr size_t kMaxPages = 131072;
constexpr unsigned kShareStep = 5;  // percent

std::vector<double> fractions() {
  std::vector<double> fractions;
  for (unsigned share : predicted_shares()) fractions.push_back(share / 100.0);
  return fractions;
}

}  // namespace

std::vector<unsigned> predicted_shares() {
  std::vector<unsigned> shares;
  for (unsigned share = kShareStep; share <= 100; share += kShareStep) shares.push_back(share);
  return shares;
}

Observation::Observation() : near_(fractions(), kMaxPages) {
  for ([[maybe_unused]] unsigned bits : kBlockBits) curves_.emplace_back(kMaxBlocks);
}

void Observation::move_to(uint64_t line, bool write) {
  for (size_t i = 0; i < curves_.size(); i++) {
    unsigned shift = kBlockBits[i] - kLineBits;
    if (line >> shift != line_ >> shift) curves_[i].access(line >> shift);
  }
  constexpr unsigned kShift = kPageBits - kLineBits;
  bool same_page = line >> kShift == line_ >> kShift;
  if (!same_page || (write && !written_)) near_.access(line >> kShift, write);
  written_ = write || (same_page && written_);
  line_ = line;
}

Estimate Observation::misses(unsigned block_bits, double bytes) const {
  const Shards& sampled = curve(block_bits);
  double blocks = bytes / static_cast<double>(uint64_t{1} << block_bits);
  // The sample may by chance represent more blocks than the accessed pages have. Distances are then too long by that
  // factor.
  double possible = heap_bytes() / static_cast<double>(uint64_t{1} << block_bits);
  if (block_bits <= kPageBits) blocks *= std::max(1.0, sampled.blocks() / std::max(1.0, possible));
  return sampled.misses(blocks);
}

const Shards& Observation::curve(unsigned block_bits) const {
  const unsigned* at = std::ranges::find(kBlockBits, block_bits);
  return curves_.at(static_cast<size_t>(at - std::begin(kBlockBits)));
}

}  // namespace farside::plan
