#include "preload/trace/trace_sites.h"

#include <atomic>
#include <cerrno>

#include "base/bits.h"
#include "base/os.h"

namespace farside::preload {
namespace {

constexpr uint64_t kChunk = 2 * kMiB;
constexpr unsigned kProbes = 32;

// The site of the last allocation in a page or chunk, and when it was made. Of a page's mark and its chunk's, the
// younger one is valid.
//
//  63          32 31           0
// +--------------+--------------+
// | clock        | site + 1     |
// +--------------+--------------+
using Mark = std::atomic<uint64_t>;
static_assert(sizeof(Mark) == 8);

TraceSite* g_sites = nullptr;
Mark* g_pages = nullptr;
Mark* g_chunks = nullptr;
uint64_t g_begin = 0;
uint64_t g_bytes = 0;
std::atomic<uint32_t> g_clock{1};

uint64_t site_of(uint64_t stack) {
  for (unsigned i = 0; i < kProbes; i++) {
    uint64_t number = (stack + i) % kMaxTraceSites;
    std::atomic_ref<uint64_t> place(g_sites[number].stack);
    uint64_t found = place.load(std::memory_order_relaxed);
    if (found == 0 && place.compare_exchange_strong(found, stack, std::memory_order_relaxed)) return number + 1;
    if (found == stack) return number + 1;
  }
  return 0;
}

void mark_pages(uint64_t begin, uint64_t end, uint64_t mark) {
  for (uint64_t at = begin; at < end; at += kPageSize) g_pages[at / kPageSize].store(mark, std::memory_order_relaxed);
}

// Offsets within far space, page aligned.
void mark_range(uint64_t begin, uint64_t end, uint64_t mark) {
  uint64_t first = align_up(begin, kChunk), last = align_down(end, kChunk);
  if (first >= last) return mark_pages(begin, end, mark);
  mark_pages(begin, first, mark);
  for (uint64_t at = first; at < last; at += kChunk) g_chunks[at / kChunk].store(mark, std::memory_order_relaxed);
  mark_pages(last, end, mark);
}

}  // namespace

Status start_sites(uint64_t space_begin, uint64_t space_bytes) {
  g_begin = space_begin;
  g_bytes = space_bytes;
  g_sites = static_cast<TraceSite*>(os::map_near(kMaxTraceSites * sizeof(TraceSite)));
  g_pages = static_cast<Mark*>(os::map_near(space_bytes / kPageSize * sizeof(Mark)));
  g_chunks = static_cast<Mark*>(os::map_near((space_bytes / kChunk + 1) * sizeof(Mark)));
  if (g_sites && g_pages && g_chunks) return {};
  return Status::error(ENOMEM,
                       "no memory for the tables of a trace; lower --tune space or raise the limit on virtual memory");
}

void note_site(uint64_t stack, uint64_t address, uint64_t bytes, uint64_t bytes_represented) {
  uint64_t site = site_of(stack);
  if (site == 0) return;
  TraceSite& s = g_sites[site - 1];
  std::atomic_ref(s.bytes).fetch_add(bytes_represented, std::memory_order_relaxed);
  std::atomic_ref largest(s.largest);
  if (bytes > largest.load(std::memory_order_relaxed)) largest.store(bytes, std::memory_order_relaxed);
  uint64_t begin = address - g_begin;
  uint64_t mark = uint64_t{g_clock.fetch_add(1, std::memory_order_relaxed)} << 32 | site;
  mark_range(align_down(begin, kPageSize), align_up(begin + bytes, kPageSize), mark);
}

uint64_t site_at(uint64_t address) {
  uint64_t offset = address - g_begin;
  if (offset >= g_bytes) return 0;
  uint64_t page = g_pages[offset / kPageSize].load(std::memory_order_relaxed);
  uint64_t chunk = g_chunks[offset / kChunk].load(std::memory_order_relaxed);
  return (page > chunk ? page : chunk) & 0xffffffff;
}

const TraceSite* trace_sites() { return g_sites; }

}  // namespace farside::preload
