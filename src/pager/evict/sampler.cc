#include "pager/evict/sampler.h"

#include <algorithm>

namespace farside::pager {

void Sampler::step(Evictor& evictor, uint64_t evictor_ns) {
  constexpr size_t kPages = 64;
  due_ = ticks() + static_cast<uint64_t>(static_cast<double>(kPauseNs) / 1000 * ticks_per_us());
  Sizing::Times now = sizing_.times(evictor_ns);
  if (next_ >= end_ && (!may_begin(now) || !begin(now))) return;
  if (!may_continue(now)) return;
  PageIndex pages[kPages];
  evictor.make_far({pages, collect(pages)}, log_);
  if (next_ >= end_) slice_ = (slice_ + 1) % kSampleSlices;
}

bool Sampler::may_begin(const Sizing::Times& now) const {
  constexpr uint64_t kWholeShare = 1024, kMinNs = 3'000'000;
  if (before_.elapsed_ns == 0) return budget_.populated() >= Budget::kMinPages;
  uint64_t elapsed = now.elapsed_ns - before_.elapsed_ns, whole = now.elapsed_ns - first_.elapsed_ns;
  return elapsed >= std::max(whole / kWholeShare, kMinNs);
}

uint64_t Sampler::sampled_pages() const {
  return budget_.populated() * (uint64_t{log_.threshold()} + 1) / (uint64_t{kSampleAll} + 1);
}

// Each page of a slice can be made far, and each of the sample fetched or touched anew.
bool Sampler::begin(const Sizing::Times& now) {
  if (!log_.reserve(kMaxPages)) return false;
  if (before_.elapsed_ns == 0) {
    first_ = now;
    usual_loss_ = static_cast<double>(now.lost_ns) / static_cast<double>(std::max<uint64_t>(now.run_ns, 1));
  }
  while (slice_ == 0 && sampled_pages() > kMaxPages) log_.halve_sample();
  before_ = now;
  next_ = 0;
  end_ = static_cast<PageIndex>(used_pages_(argument_));
  log_.add_state(SampleKind::kThreshold, log_.threshold());
  log_.add_state(SampleKind::kLostUs, now.lost_ns / 1000);
  log_.add_state(SampleKind::kRanUs, now.run_ns / 1000);
  log_.add_state(SampleKind::kPopulated, budget_.populated());
  log_.add_state(SampleKind::kRound, slice_);
  return true;
}

bool Sampler::may_continue(const Sizing::Times& now) {
  constexpr double kMaxLoss = 0.2;
  constexpr uint64_t kWindowNs = 100'000'000;
  uint64_t elapsed = now.elapsed_ns - window_.elapsed_ns, ran = saturating_sub(now.run_ns, window_.run_ns);
  auto lost = static_cast<double>(saturating_sub(now.lost_ns, window_.lost_ns));
  bool may = lost <= (kMaxLoss + usual_loss_) * static_cast<double>(std::max(elapsed, ran));
  if (may && elapsed > kWindowNs) window_ = now;
  return may;
}

// The next near pages of the slice: of whole clusters, so that streams remain visible. Looks at a bounded number of
// clusters.
size_t Sampler::collect(std::span<PageIndex> out) {
  constexpr unsigned kClusters = 65536;
  size_t count = 0;
  for (unsigned seen = 0; next_ < end_ && seen < kClusters && count + kSampleCluster <= out.size(); seen++) {
    PageIndex first = next_;
    next_ += kSampleCluster;
    if (!is_sampled(first, log_.threshold()) || sample_slice(first) != slice_) continue;
    for (PageIndex page = first; page < std::min(next_, end_); page++) {
      PageWord word = table_[page].load();
      if (word.is(PageState::kFar)) log_.add_page(SampleKind::kFarStill, page);
      else if (word.is(PageState::kNear) && !word.has(PageWord::kFreed)) out[count++] = page;
    }
  }
  return count;
}

}  // namespace farside::pager
