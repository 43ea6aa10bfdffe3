#include "preload/guard/signals/faults.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>

#include "base/sync.h"
#include "fiber/wait.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/signals/signals.h"
#include "preload/guard/thread/pins.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

// While the cost of signals is measured: when the last fault entered the handler, and when the handler was done.
std::atomic<bool> g_timing{false};
std::atomic<uint64_t> g_entered{0}, g_left{0};

bool is_write_fault(const ucontext_t* context) { return (context->uc_mcontext.gregs[REG_ERR] & 2) != 0; }

void fault(pager::Pager& pager, uint64_t address, ucontext_t* interrupted, bool in_fiber) {
  bool write = is_write_fault(interrupted);
  if (tracing()) trace_fault(address, write, interrupted);
  if (pager.paging().fault(address, write, in_fiber) == pager::FaultOutcome::kNotMapped) {
    pager.addresses().guard_page(address);  // the access is repeated and fails as it would natively, with SIGSEGV
  }
}

// A fault of a fiber may let other fibers run on this thread, so a flag of the thread cannot defer signals: they are
// blocked.
void fault_in_fiber(pager::Pager& pager, uint64_t address, ucontext_t* interrupted) {
  os::sigprocmask(SIG_BLOCK, &SignalsBlocked::kAllButFaults, nullptr);
  this_guard().handlers.sigbus = 0;
  fault(pager, address, interrupted, true);
}

}  // namespace

extern "C" void farside_on_sigbus(int signal, siginfo_t* info, void* context) {
  bool timing = g_timing.load(std::memory_order_relaxed);
  if (timing) g_entered.store(ticks(), std::memory_order_relaxed);
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  pager::Pager* pager = guard_pager();
  // si_code distinguishes an absent page (BUS_ADRERR) from a signal that was sent. A foreign page may be of a file that
  // has become shorter.
  bool far = pager && info->si_code > 0 && pager->table().contains(address) && !pager->table().is_foreign(address);
  if (!far) return chain_signal(signal, info, context, mask_of(context));
  auto* interrupted = static_cast<ucontext_t*>(context);
  if (fibers::in_fiber(mask_of(context))) fault_in_fiber(*pager, address, interrupted);
  else fault(*pager, address, interrupted, false);
  if (timing) g_left.store(ticks(), std::memory_order_relaxed);
}

SignalCost measure_signal_cost(pager::Pager& pager) {
  constexpr size_t kSamples = 32;
  uint64_t delivery[kSamples], back[kSamples];
  std::byte* pages = pager.addresses().reserve(kSamples * kPageSize, kPageSize);
  if (!pages) return {};
  size_t seen = 0;
  if (pager.addresses().commit(pages, kSamples * kPageSize).ok()) {
    g_timing.store(true);
    for (size_t i = 0; i < kSamples; i++) {
      uint64_t start = ticks();
      static_cast<void>(*static_cast<volatile std::byte*>(pages + i * kPageSize));
      uint64_t end = ticks(), entered = g_entered.load(), left = g_left.load();
      if (entered < start || left < entered || end < left) continue;  // a fault of another thread was in between
      delivery[seen] = entered - start;
      back[seen++] = end - left;
    }
    g_timing.store(false);
    pager.addresses().decommit(pages, kSamples * kPageSize);
  }
  pager.addresses().release(pages, kSamples * kPageSize);
  if (seen == 0) return {};
  auto median_us = [middle = seen / 2, seen](uint64_t* samples) {
    std::nth_element(samples, samples + middle, samples + seen);
    return static_cast<double>(samples[middle]) / ticks_per_us();
  };
  return {median_us(delivery), median_us(back)};
}

}  // namespace farside::preload
