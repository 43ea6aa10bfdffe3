#include "pager/size/sizing.h"

#include <algorithm>

#include "base/os.h"

namespace farside::pager {
namespace {

constexpr uint64_t kStepUs = 2000;
constexpr uint64_t kDeliveryNs = 2500;  // the kernel's delivery of a fault and the return, which no counter has

uint64_t ns_of(uint64_t ticks) { return static_cast<uint64_t>(static_cast<double>(ticks) * 1000 / ticks_per_us()); }

}  // namespace

bool Sizing::step(uint64_t evictor_ns) {
  due_ = ticks() + static_cast<uint64_t>(kStepUs * ticks_per_us());
  Totals now = totals(evictor_ns);
  if (!sizer_) {
    sizer_.emplace(slowdown_);
    before_ = now;
    before_ages_ = ages();
    look_at_machine();  // a heap may grow by gigabytes before the second step
    return false;
  }
  if (now.elapsed_ns >= machine_due_) look_at_machine();
  add_to_means((now.elapsed_ns - before_.elapsed_ns) / 1000);
  SizeSample sample = sample_since(before_, now);
  before_ = now;
  uint64_t far = budget_.far(), least = budget_.least();
  uint64_t next = sizer_->add(sample) ? end_window(sample, far, least) : sizer_->idle(sample, far, least);
  if (next > 0 || far > 0) budget_.set_far(next);  // for what was freed meanwhile, too
  return next > far;
}

// Threads have many buckets, so ages are summed once a window.
uint64_t Sizing::end_window(const SizeSample& sample, uint64_t far, uint64_t least) {
  Histogram now = ages(), window = now;
  window.subtract(before_ages_);
  before_ages_ = now;
  return sizer_->next(sample, window, far, least);
}

// Before the machine or the cgroup runs out of memory, pages leave, whatever that costs the program.
void Sizing::look_at_machine() {
  constexpr uint64_t kPeriodNs = 100'000'000;
  machine_due_ = now_ns() + kPeriodNs;
  if (!machine_) machine_.emplace();
  int64_t room = machine_->left() / static_cast<int64_t>(kPageSize) + static_cast<int64_t>(frames_.used());
  budget_.set_room(static_cast<uint64_t>(std::max<int64_t>(room, 0)));
}

// By one thread.
void Sizing::add_to_means(uint64_t us) {
  uint64_t populated = budget_.populated();
  auto add = [](std::atomic<uint64_t>& sum, uint64_t more) {
    sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_release);
  };
  add(near_page_us_, us * std::min(frames_.held(), populated));
  add(populated_page_us_, us * populated);
  add(us_, us);
}

Sizing::Means Sizing::means() const {
  uint64_t us = us_.load(std::memory_order_acquire);
  if (us == 0) return {frames_.held(), budget_.populated()};
  return {near_page_us_.load(std::memory_order_relaxed) / us, populated_page_us_.load(std::memory_order_relaxed) / us};
}

void Sizing::reset_in_child() {
  sizer_.reset();
  for (std::atomic<uint64_t>* sum : {&near_page_us_, &populated_page_us_, &us_}) sum->store(0);
}

Sizing::Totals Sizing::totals(uint64_t evictor_ns) const {
  Totals sum;
  sum.elapsed_ns = now_ns();
  sum.run_ns = saturating_sub(os::process_cpu_ns(), evictor_ns);
  sum.evicted = frames_.evicted();
  uint64_t lost = 0, faults = 0;  // in ticks; those that cost time
  threads_.for_each([&](ThreadSlot& t) {
    lost += saturating_sub(t.counters.get(Counter::kFaultTicks), t.counters.get(Counter::kTouchTicks));
    faults += saturating_sub(t.counters.get(Counter::kFaults), t.counters.get(Counter::kTouchFaults));
  });
  sum.lost_ns = ns_of(lost) + kDeliveryNs * faults;
  return sum;
}

Histogram Sizing::ages() const {
  Histogram sum;
  threads_.for_each([&](ThreadSlot& t) { sum.add(t.refault_ages); });
  return sum;
}

SizeSample Sizing::sample_since(const Totals& before, const Totals& now) const {
  auto since = [&](uint64_t Totals::*total) { return saturating_sub(now.*total, before.*total); };
  uint64_t limit = frames_.limit(), used = frames_.used();
  uint64_t taken = used + frames_.reserved() + 2 * frames_.low_water();
  return {.elapsed_ns = since(&Totals::elapsed_ns),
          .run_ns = since(&Totals::run_ns),
          .lost_ns = since(&Totals::lost_ns),
          .evicted = since(&Totals::evicted),
          .near = used,
          .far = saturating_sub(budget_.populated(), used),
          .free = saturating_sub(limit, taken),
          .shrinking = limit > frames_.target()};
}

}  // namespace farside::pager
