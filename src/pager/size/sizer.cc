#include "pager/size/sizer.h"

#include <algorithm>

#include "base/bits.h"

namespace farside::pager {
namespace {

constexpr double kWindowNs = 20e6;                      // of running; a loss of a shorter time says little
constexpr double kRecentNs = 1e9, kLongNs = 30e9;       // of running
constexpr uint64_t kIdleNs = 1'000'000'000;             // without a window's worth of running: the program is idle
constexpr uint64_t kIdleShare = 64;                     // of near memory that an idle program gives back each second
constexpr double kAim = 0.6;                            // of the target, that growth and steps down aim at
constexpr double kMinReturns = 0.01;                    // of the pages of a step
constexpr uint64_t kMinStep = 64;                       // pages
constexpr uint64_t kMaxStepShare = 16;                  // of near memory
constexpr uint64_t kSlackShare = 16, kMinSlack = 1024;  // pages by which fewer than the wanted ones may be far
constexpr uint64_t kEnoughPages = 64;                   // that a mean is taken of

double mean(double before, double now) { return before + (now - before) / 4; }

}  // namespace

// A thread that waits may use its processor or not. Where it does, the time lost is part of the running time.
double Sizer::Times::useful() const { return std::max({run - lost, run / 4, 1.0}); }

void Sizer::Times::add(const Times& t, double ns) {
  double kept = std::max(0.0, 1 - t.run / ns);
  run = run * kept + t.run;
  lost = lost * kept + t.lost;
}

bool Sizer::add(const SizeSample& sample) {
  Times times = {static_cast<double>(sample.run_ns), static_cast<double>(sample.lost_ns)};
  window_.add(times);
  recent_.add(times, kRecentNs);
  long_.add(times, kLongNs);
  evicted_ += sample.evicted;
  elapsed_ += sample.elapsed_ns;
  return window_.run + window_.lost >= kWindowNs || window_.lost >= target_ * kWindowNs;
}

uint64_t Sizer::next(const SizeSample& sample, const Histogram& ages, uint64_t far, uint64_t least) {
  learn(ages.count());
  // Pages that the program has freed may have been far.
  if (!sample.shrinking) far = std::min(far, sample.far + sample.near / kSlackShare + kMinSlack);
  uint64_t next = far;
  if (window_.loss() > target_) next = grow(sample, ages, far);
  else if (!sample.shrinking) next = shrink(sample, far, least);
  window_ = {};
  evicted_ = elapsed_ = 0;
  return next;
}

void Sizer::learn(uint64_t returned) {
  if (returned >= kEnoughPages) page_cost_ = mean(page_cost_, window_.lost / static_cast<double>(returned));
  if (evicted_ >= kEnoughPages)
    returns_ = mean(returns_, std::min(1.0, static_cast<double>(returned) / static_cast<double>(evicted_)));
}

uint64_t Sizer::grow(const SizeSample& sample, const Histogram& ages, uint64_t far) const {
  auto accepted = static_cast<uint64_t>(kAim * target_ * window_.useful() / page_cost_);
  return saturating_sub(far, saturating_sub(ages.exceeded_by(accepted), sample.free));
}

uint64_t Sizer::shrink(const SizeSample& sample, uint64_t far, uint64_t least) const {
  double aim = kAim * target_, loss = std::max({window_.loss(), recent_.loss(), long_.loss()});
  if (loss >= aim || sample.near <= least) return far;
  auto step = static_cast<uint64_t>((aim - loss) * window_.useful() / (page_cost_ * std::max(returns_, kMinReturns)));
  step = std::clamp(step, kMinStep, std::max(kMinStep, sample.near / kMaxStepShare));
  return std::max(far, sample.far) + std::min(step, sample.near - least);
}

uint64_t Sizer::idle(const SizeSample& sample, uint64_t far, uint64_t least) {
  if (elapsed_ < kIdleNs) return far;
  elapsed_ = 0;
  if (sample.shrinking || sample.near <= least) return far;
  return std::max(far, sample.far) + std::min(sample.near / kIdleShare, sample.near - least);
}

}  // namespace farside::pager
