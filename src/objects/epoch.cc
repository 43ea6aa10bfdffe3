#include "objects/epoch.h"

#include "base/log.h"
#include "base/os.h"

namespace farside::objects {

ScopeRecord* Epochs::attach() {
  for (ScopeRecord* r = first_.load(std::memory_order_acquire); r; r = r->next) {
    bool free = false;
    if (!r->taken.load(std::memory_order_relaxed) && r->taken.compare_exchange_strong(free, true)) return r;
  }
  auto* record = new ScopeRecord();
  record->next = first_.load(std::memory_order_relaxed);
  while (!first_.compare_exchange_weak(record->next, record, std::memory_order_acq_rel)) {}
  return record;
}

uint32_t Epochs::advance() {
  auto raised = static_cast<uint32_t>(__atomic_add_fetch(&farside_epoch, 1, __ATOMIC_SEQ_CST));
  if (raised == 0) raised = static_cast<uint32_t>(__atomic_add_fetch(&farside_epoch, 1, __ATOMIC_SEQ_CST));
  if (int error = os::membarrier()) die("internal error: no membarrier (error {})", -error);
  uint32_t oldest = raised;
  for (ScopeRecord* r = first_.load(std::memory_order_acquire); r; r = r->next) {
    auto epoch = static_cast<uint32_t>(__atomic_load_n(&r->epoch, __ATOMIC_ACQUIRE));
    if (epoch != 0 && is_before(epoch, oldest)) oldest = epoch;
  }
  return oldest;
}

void Epochs::wait_for_others(const ScopeRecord* self) {
  if (int error = os::membarrier()) die("internal error: no membarrier (error {})", -error);
  for (ScopeRecord* r = first_.load(std::memory_order_acquire); r; r = r->next) {
    while (r != self && r->busy.load(std::memory_order_acquire)) os::sched_yield();
  }
}

void Epochs::reset_in_child(const ScopeRecord* self) {
  for (ScopeRecord* r = first_.load(std::memory_order_acquire); r; r = r->next) {
    if (r == self) continue;
    __atomic_store_n(&r->epoch, 0, __ATOMIC_RELEASE);
    r->depth = r->held = 0;
    r->stopped = 0;
    r->taken.store(false, std::memory_order_relaxed);
  }
}

}  // namespace farside::objects
