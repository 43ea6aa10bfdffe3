#include "pager/size/sizing.h"

#include <algorithm>

#include "base/os.h"

namespace farside::pager {
namespace {

constexpr uint64_t kStepUs = 2000;
constexpr uint64_t kDeliveryNs = 2500;  // the kernel's delivery of a fault and the return, which no counter has

uint64_t ns_of(uint64_t ticks) { return static_cast<uint64_t>(static_cast<double>(ticks) * 1000 / ticks_per_us()); }

uint64_t since(uint64_t before, uint64_t now) { return now - std::min(now, before); }

}  // namespace

bool Sizing::step(uint64_t evictor_ns) {
  due_ = ticks() + static_cast<uint64_t>(kStepUs * ticks_per_us());
  Totals now = totals(evictor_ns);
  if (!sizer_) {
    sizer_.emplace(slowdown_);
    before_ = now;
    return false;
  }
  if (now.time >= machine_due_) look_at_machine();
  add_to_mean((now.time - before_.time) / 1000);
  uint64_t far = budget_.far(), next = sizer_->next(sample(before_, now), far, budget_.least());
  before_ = now;
  if (next > 0 || far > 0) budget_.set_far(next);  // for what was freed meanwhile, too
  return next > far;
}

// Before the machine or the cgroup runs out of memory, pages leave, whatever that costs the program.
void Sizing::look_at_machine() {
  constexpr uint64_t kPeriodNs = 100'000'000;
  machine_due_ = now_ns() + kPeriodNs;
  int64_t room = machine_.left() / static_cast<int64_t>(kPageSize) + static_cast<int64_t>(frames_.used());
  budget_.set_room(static_cast<uint64_t>(std::max<int64_t>(room, 0)));
}

void Sizing::add_to_mean(uint64_t us) {
  page_us_.store(page_us_.load(std::memory_order_relaxed) + us * frames_.used(), std::memory_order_relaxed);
  us_.store(us_.load(std::memory_order_relaxed) + us, std::memory_order_release);
}

uint64_t Sizing::mean_pages() const {
  uint64_t us = us_.load(std::memory_order_acquire);
  return us == 0 ? frames_.used() : page_us_.load(std::memory_order_relaxed) / us;
}

void Sizing::reset_in_child() {
  sizer_.reset();
  page_us_.store(0);
  us_.store(0);
}

Sizing::Totals Sizing::totals(uint64_t evictor_ns) const {
  Totals sum = {
      .time = now_ns(), .cpu = os::process_cpu_ns(), .evictor = evictor_ns, .evicted = frames_.evicted(), .ages = {}};
  threads_.for_each([&](ThreadSlot& t) {
    sum.lost += since(t.counters.get(Counter::kTouchTicks), t.counters.get(Counter::kFaultTicks));
    sum.faults += since(t.counters.get(Counter::kTouchFaults), t.counters.get(Counter::kFaults));
    sum.ages.add(t.refault_ages);
  });
  return sum;
}

SizeSample Sizing::sample(const Totals& before, const Totals& now) const {
  uint64_t limit = frames_.limit(), used = frames_.used();
  uint64_t taken = used + frames_.reserved() + 2 * frames_.low_water();
  uint64_t lost = ns_of(since(before.lost, now.lost)) + kDeliveryNs * since(before.faults, now.faults);
  SizeSample sample = {.elapsed_ns = since(before.time, now.time),
                       .run_ns = since(since(before.evictor, now.evictor), since(before.cpu, now.cpu)),
                       .lost_ns = lost,
                       .evicted = since(before.evicted, now.evicted),
                       .ages = now.ages,
                       .near = used,
                       .far = since(used, budget_.populated()),
                       .free = since(taken, limit),
                       .shrinking = limit > frames_.target()};
  sample.ages.subtract(before.ages);
  return sample;
}

}  // namespace farside::pager
