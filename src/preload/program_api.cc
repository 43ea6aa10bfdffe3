// The functions of include/farside/farside.h for programs that run under Farside. These symbols are found before those
// of libfarside.so. Called by ordinary code of the program, never under a fault.
#include <cerrno>
#include <cstring>

#include "farside/farside.h"
#include "preload/program_api.h"
#include "preload/trace/trace.h"

#define FARSIDE_PUBLIC __attribute__((visibility("default")))

using farside::pager::PageState;
using farside::pager::PageWord;

// The constants of the inline check are those of the page word.
static_assert(FARSIDE_PAGE_DIRTY_ == PageWord::kDirty);
static_assert(FARSIDE_PAGE_NEAR_ == (static_cast<uint64_t>(PageState::kNear) | PageWord::kHot));
static_assert(FARSIDE_PAGE_COW_ == PageWord::kCow);
static_assert(FARSIDE_PAGE_MASK_ == (PageWord::kStateMask | PageWord::kHot | PageWord::kCow));

extern "C" {

FARSIDE_PUBLIC struct farside_view farside_view = {0, 0, nullptr};

FARSIDE_PUBLIC void farside_hint_slow(const void* address, size_t bytes, unsigned options) {
  farside::pager::Pager* pager = farside::preload::guard_pager();
  auto at = reinterpret_cast<uint64_t>(address);
  if (!pager || !pager->table().contains(at)) return;
  unsigned fetched = pager->paging().hint({.address = at,
                                           .bytes = bytes,
                                           .write = (options & FARSIDE_WRITE) != 0,
                                           .priority = options >> 2 & 3,
                                           .ahead = options >> 8 & 255,
                                           .behind = options >> 16 & 255});
  if (farside::preload::tracing()) farside::preload::trace_hint(at, fetched > 0, __builtin_return_address(0));
}

FARSIDE_PUBLIC int farside_region_set_policy_(const void* address, size_t bytes, const char* policy) {
  farside::pager::Pager* pager = farside::preload::guard_pager();
  auto* begin = static_cast<std::byte*>(const_cast<void*>(address));
  if (!pager || !pager->table().contains(reinterpret_cast<uint64_t>(address))) return 0;  // near memory has no policy
  if (!policy) {
    pager->addresses().remove_region(begin);
    return 0;
  }
  farside::PolicyKind kind;
  return farside::policy_from_name(policy, &kind) ? -pager->addresses().add_region(begin, bytes, kind).code() : -EINVAL;
}

FARSIDE_PUBLIC int farside_get_stats(struct farside_stats* stats) {
  using farside::pager::Counter;
  memset(stats, 0, sizeof *stats);
  farside::pager::Pager* pager = farside::preload::guard_pager();
  if (!pager) return -ENOSYS;
  farside::pager::Stats s = pager->stats();
  constexpr uint64_t kPage = farside::kPageSize;
  *stats = {s.near_pages * kPage,   s.limit_pages * kPage,         s.populated_pages * kPage, s.get(Counter::kFaults),
            s.get(Counter::kHints), s.get(Counter::kHintsFetched), s.get(Counter::kHintsWild)};
  return 0;
}

FARSIDE_PUBLIC int farside_get_costs(struct farside_costs* costs) {
  using farside::pager::Counter;
  memset(costs, 0, sizeof *costs);
  farside::pager::Pager* pager = farside::preload::guard_pager();
  if (!pager) return -ENOSYS;
  farside::pager::Stats s = pager->stats();
  double fault_us = farside::pager::in_unit(farside::pager::Unit::kTicks, s.get(Counter::kFaultTicks));
  *costs = {static_cast<uint64_t>(fault_us * 1000), s.get(Counter::kMajorFaults), s.busiest_thread_fetches,
            s.get(Counter::kBytesFetched), s.get(Counter::kBytesWritten)};
  return 0;
}

FARSIDE_PUBLIC int farside_set_limit(uint64_t bytes) {
  farside::pager::Pager* pager = farside::preload::guard_pager();
  if (!pager) return -ENOSYS;
  if (bytes < farside::pager::Budget::kMinPages * farside::kPageSize) return -EINVAL;
  pager->evictors().set_local({bytes, 0});
  return 0;
}
}

namespace farside::preload {

void show_far_memory_to_hints(pager::Pager* pager) {
  farside_view = {reinterpret_cast<uintptr_t>(pager->space().base()), pager->space().bytes(),
                  reinterpret_cast<const uint64_t*>(pager->table().word_at(0))};
}

}  // namespace farside::preload
