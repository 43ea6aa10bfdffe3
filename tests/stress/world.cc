#include "world.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "base/log.h"
#include "stress_worker.h"

namespace farside::stress {
namespace {

// An explicit instantiation may name private members. This gives access to page words without an accessor in Pager.
template <auto kMember>
struct Expose {
  friend pager::PageTable& table_of(pager::Pager& p) { return p.*kMember; }
};
template struct Expose<&pager::Pager::table_>;
pager::PageTable& table_of(pager::Pager&);

}  // namespace

pager::PageWord word_at(pager::Pager& pager, pager::PageIndex page) { return table_of(pager)[page].load(); }

bool World::begin_quiet(StressWorker& self) {
  bool expected = false;
  if (!quiet.compare_exchange_strong(expected, true)) return false;
  for (StressWorker* w : workers) {
    while (w != &self && w->busy.load()) os::nanosleep_ns(50000);
  }
  if (!kForkLocksAllocator) starting.lock();
  return true;
}

void World::end_quiet() {
  if (!kForkLocksAllocator) starting.unlock();
  quiet.store(false);
}

void World::compare(const std::byte* far, const std::byte* shadow, size_t bytes, const char* what) {
  if (memcmp(far, shadow, bytes) == 0) return;
  for (size_t i = 0; i < bytes; i++) {
    if (far[i] != shadow[i]) fail(what, far + i, shadow + i);
  }
  fail("memory differed once, but not when compared again", far, shadow);
}

void World::compare_on_server(const std::byte* copy, const std::byte* far, const std::byte* shadow, size_t bytes) {
  size_t same = static_cast<size_t>(std::mismatch(copy, copy + bytes, shadow).first - copy);
  if (same == bytes) return;
  log(LogLevel::kError, "a function would have read {:#04x}", static_cast<unsigned>(copy[same]));
  fail("the server's copy in a call; what is near", far + same, shadow + same);
}

void World::fail(const char* what, const std::byte* far, const std::byte* shadow) {
  const char* side = in_child ? "child" : "parent";
  if (!far) {
    log(LogLevel::kError, "FAILED in the {}: {}; seed {}", side, what, settings.seed);
  } else {
    auto offset = static_cast<uint64_t>(far - pager.space().base());
    auto page = static_cast<pager::PageIndex>(offset / kPageSize);
    uint64_t word = word_at(pager, page).bits();
    log(LogLevel::kError,
        "FAILED in the {}: {}: page {} offset {} expected {:#04x} found {:#04x}, page word {:#x}, seed {}", side, what,
        page, offset % kPageSize, static_cast<unsigned>(*shadow), static_cast<unsigned>(*far), word, settings.seed);
  }
  os::exit_group(1);
}

void World::abort_stuck() {
  pager::Stats s = pager.stats();
  log(LogLevel::kError, "STUCK: no progress for 30 s; seed {}; near {} of {} pages, metadata {} bytes", settings.seed,
      s.near_pages, s.limit_pages, s.metadata_bytes);
  for (uint64_t i = 0; i < pager.space().bytes() / kPageSize; i++) {
    pager::PageWord w = word_at(pager, static_cast<pager::PageIndex>(i));
    bool moving =
        w.is(pager::PageState::kFetching) || w.is(pager::PageState::kEvicting) || w.has(pager::PageWord::kUpgrading);
    if (moving || w.pins() > 0) log(LogLevel::kError, "page {} word {:#x}", i, w.bits());
  }
  abort();
}

}  // namespace farside::stress
