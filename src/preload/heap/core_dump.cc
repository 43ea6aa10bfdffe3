#include "preload/heap/core_dump.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "abi/core_map.h"
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
bool g_fetches = false;
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

// Calls visit(address, word) for each populated page. The space is much larger than what is populated.
template <typename Visit>
class PopulatedPages {
 public:
  explicit PopulatedPages(Visit visit) : visit_(visit), left_(g_pager->stats().populated_pages) {}
  void visit_all() {
    auto base = reinterpret_cast<uint64_t>(g_pager->space().base());
    visit_range(base, base + g_pager->space().bytes());
    visit_far_mappings_outside([&](uint64_t begin, uint64_t end) { visit_range(begin, end); });
  }

 private:
  void visit_range(uint64_t begin, uint64_t end) {
    for (uint64_t at = begin; at < end && left_ > 0; at += kPageSize) {
      pager::PageWord word = g_pager->table().word(at);
      if (word.is(pager::PageState::kUnmapped) || word.is(pager::PageState::kUntouched)) continue;
      left_--;
      visit_(at, word.is(pager::PageState::kNear));
    }
  }

  Visit visit_;
  uint64_t left_;
};

// Makes pages near, in the order of their addresses, as long as they fit. Returns the number of pages that were left
// out.
uint64_t fetch_all(uint64_t room) {
  uint64_t left_out = 0;
  PopulatedPages([&](uint64_t address, bool near) {
    bool fits = room > 0;
    if (fits) room--;
    if (!near && fits) g_pager->paging().fault(address, false);
    if (!near && !fits) left_out++;
  }).visit_all();
  return left_out;
}

// The ranges of far pages, as far as there is room for them. Other threads go on meanwhile.
class FarRanges {
 public:
  FarRanges(CoreMapRange* ranges, uint64_t room) : ranges_(ranges), room_(room) {}
  void find() {
    PopulatedPages([this](uint64_t address, bool near) {
      if (near) return;
      if (address != end_ && !begin_range(address)) return;
      end_ = address + kPageSize;
      if (ranges_) ranges_[count_ - 1].end = end_;
    }).visit_all();
  }
  uint64_t count() const { return count_; }

 private:
  bool begin_range(uint64_t address) {
    if (count_ == room_) return false;
    if (ranges_) ranges_[count_] = {address, address};
    count_++;
    return true;
  }

  CoreMapRange* const ranges_;  // may be null: they are counted only
  const uint64_t room_;
  uint64_t count_ = 0, end_ = 0;
};

// Some more than were counted, since other threads evict pages meanwhile. The mapping stays until the process ends.
void list_far_pages() {
  FarRanges counted(nullptr, UINT64_MAX);
  counted.find();
  uint64_t room = counted.count() + counted.count() / 8 + kPageSize;
  uint64_t bytes = align_up(sizeof(CoreMapHeader) + room * sizeof(CoreMapRange), kPageSize);
  void* memory = os::map_near(bytes);
  if (!memory) return;  // a core without the list is of more use than none
  auto* header = new (memory) CoreMapHeader;
  FarRanges listed(reinterpret_cast<CoreMapRange*>(header + 1), room);
  listed.find();
  header->ranges = listed.count();
  os::madvise(memory, bytes, MADV_DODUMP);
}

void fetch_far_pages() {
  uint64_t room = std::min(g_pager->frames().limit() * kPageSize + spare_memory(), core_limit()) / kPageSize;
  g_pager->evictors().set_local({0, 1.0});
  fetch_all(room);  // evictions that had begun may take pages meanwhile
  uint64_t left_out = fetch_all(room);
  if (left_out == 0) return;
  log(LogLevel::kWarning,
      "the core dump lacks {} far pages, which do not fit free memory or the limit of cores (ulimit -c)", left_out);
}

}  // namespace

void prepare_core_dumps(pager::Pager* pager, bool fetch) {
  if (!fetch && core_limit() == 0) return;
  g_pager = pager;
  g_fetches = fetch;
}

bool is_core_dump_prepared(int signal) { return g_pager && (kCoreSignals & os::signal_bit(signal)) != 0; }

void prepare_core_dump(int signal) {
  if (!is_core_dump_prepared(signal) || core_limit() == 0 || g_begun.exchange(true)) return;
  if (g_fetches) fetch_far_pages();
  list_far_pages();
}

}  // namespace farside::preload
