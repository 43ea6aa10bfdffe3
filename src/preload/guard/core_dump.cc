#include "preload/guard/core_dump.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>

#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "preload/heap/mappings.h"

namespace farside::preload {
namespace {

constexpr os::SignalSet kCoreSignals = os::signal_bit(SIGQUIT) | os::signal_bit(SIGILL) | os::signal_bit(SIGTRAP) |
                                       os::signal_bit(SIGABRT) | os::signal_bit(SIGBUS) | os::signal_bit(SIGFPE) |
                                       os::signal_bit(SIGSEGV) | os::signal_bit(SIGXCPU) | os::signal_bit(SIGXFSZ) |
                                       os::signal_bit(SIGSYS);

pager::Pager* g_pager = nullptr;
std::atomic<bool> g_begun{false};

uint64_t core_limit() {
  rlimit limit = {};
  if (os::call(SYS_prlimit64, 0, RLIMIT_CORE, nullptr, &limit) < 0) return 0;
  return limit.rlim_cur;
}

// Half of the memory that is free: the core itself is written through the page cache.
uint64_t spare_memory() {
  struct sysinfo info = {};
  if (os::call(SYS_sysinfo, &info) < 0) return 0;
  return (info.freeram + info.bufferram) * info.mem_unit / 2;
}

// Makes populated pages near, in the order of their addresses, as long as they fit.
class Fetch {
 public:
  Fetch(pager::Pager& pager, uint64_t room) : pager_(pager), populated_(pager.stats().populated_pages), room_(room) {}
  void range(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end && populated_ > 0; at += kPageSize) page(at);
  }
  uint64_t left_out() const { return left_out_; }

 private:
  void page(uint64_t address) {
    pager::PageWord word = pager_.word(address);
    if (word.is(pager::PageState::kUnmapped) || word.is(pager::PageState::kUntouched)) return;
    populated_--;
    bool fits = room_ > 0, near = word.is(pager::PageState::kNear);
    if (fits) room_--;
    if (!near && fits) pager_.fault(address, false);
    if (!near && !fits) left_out_++;
  }

  pager::Pager& pager_;
  uint64_t populated_;  // pages that were not visited yet: the space is much larger
  uint64_t room_;       // for further pages
  uint64_t left_out_ = 0;
};

// Returns the number of pages that were left out.
uint64_t fetch_all(uint64_t room) {
  Fetch fetch(*g_pager, room);
  auto base = reinterpret_cast<uint64_t>(g_pager->base());
  fetch.range(base, base + g_pager->space_bytes());
  visit_far_mappings_outside([&](uint64_t begin, uint64_t end) { fetch.range(begin, end); });
  return fetch.left_out();
}

}  // namespace

void fetch_before_core_dumps(pager::Pager* pager) { g_pager = pager; }

bool is_core_dump_prepared(int signal) { return g_pager && (kCoreSignals & os::signal_bit(signal)) != 0; }

void prepare_core_dump(int signal) {
  if (!is_core_dump_prepared(signal) || core_limit() == 0 || g_begun.exchange(true)) return;
  uint64_t room = std::min(g_pager->near_limit_bytes() + spare_memory(), core_limit()) / kPageSize;
  g_pager->set_local({0, 1.0});
  fetch_all(room);  // evictions that had begun may take pages meanwhile
  uint64_t left_out = fetch_all(room);
  if (left_out == 0) return;
  log(LogLevel::kWarning,
      "the core dump lacks {} far pages, which do not fit free memory or the limit of cores (ulimit -c)", left_out);
}

}  // namespace farside::preload
