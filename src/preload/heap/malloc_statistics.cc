// What glibc's malloc says of itself, as far as jemalloc has it: mallinfo, malloc_info, malloc_stats, malloc_trim.
// Blocks of glibc's default mmap threshold and more count as mapped ones. mallopt is glibc's: its settings are about a
// heap that is not used.
#include <malloc.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "preload/heap/far_heap.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace farside::preload {
namespace {

constexpr size_t kMmapThreshold = 128 * kKiB;

template <typename Value>
Value get(const char* name, Value none = 0) {
  size_t bytes = sizeof none;
  far_je_mallctl(name, &none, &bytes, nullptr, 0);
  return none;
}

template <typename Value>
Value get_at(const char* format, unsigned index) {
  char name[64];
  snprintf(name, sizeof name, format, index);
  return get<Value>(name);
}

// 4096: MALLCTL_ARENAS_ALL. What this thread keeps for reuse is free memory.
void refresh() {
  far_je_mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  uint64_t epoch = 1;
  far_je_mallctl("epoch", nullptr, nullptr, &epoch, sizeof epoch);
}

size_t dirty_pages() { return get<size_t>("stats.arenas.4096.pdirty") + get<size_t>("stats.arenas.4096.pmuzzy"); }

struct mallinfo2 measure() {
  refresh();
  struct mallinfo2 info = {};
  auto classes = get<unsigned>("arenas.nlextents");
  for (unsigned i = 0; i < classes; i++) {
    auto bytes = get_at<size_t>("arenas.lextent.%u.size", i);
    if (bytes < kMmapThreshold) continue;
    auto blocks = get_at<size_t>("stats.arenas.4096.lextents.%u.curlextents", i);
    info.hblks += blocks;
    info.hblkhd += blocks * bytes;
  }
  auto allocated = get<size_t>("stats.allocated"), active = get<size_t>("stats.active");
  size_t kept = active + dirty_pages() * kPageSize;
  info.uordblks = allocated > info.hblkhd ? allocated - info.hblkhd : 0;
  info.arena = kept > info.hblkhd ? kept - info.hblkhd : 0;
  if (info.arena < info.uordblks) info.arena = info.uordblks;
  info.fordblks = info.arena - info.uordblks;
  info.ordblks = 1;
  return info;
}

}  // namespace
}  // namespace farside::preload

using namespace farside::preload;  // NOLINT

EXPORT struct mallinfo2 mallinfo2() { return measure(); }

EXPORT struct mallinfo mallinfo() {
  struct mallinfo2 m = measure();
  auto number = [](size_t value) { return static_cast<int>(value); };
  return {number(m.arena),   number(m.ordblks), number(m.smblks),   number(m.hblks),    number(m.hblkhd),
          number(m.usmblks), number(m.fsmblks), number(m.uordblks), number(m.fordblks), number(m.keepcost)};
}

EXPORT int malloc_trim(size_t) {
  refresh();
  bool any = dirty_pages() > 0;
  far_je_mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);
  return any;
}

EXPORT int malloc_info(int options, FILE* file) {
  if (options != 0) return EINVAL;
  struct mallinfo2 m = measure();
  auto print_sizes = [&] {
    fprintf(file,
            "<system type=\"current\" size=\"%zu\"/>\n<system type=\"max\" size=\"%zu\"/>\n"
            "<aspace type=\"total\" size=\"%zu\"/>\n<aspace type=\"mprotect\" size=\"%zu\"/>\n",
            m.arena, m.arena, m.arena, m.arena);
  };
  auto print_free = [&] {
    fprintf(file, "<total type=\"fast\" count=\"0\" size=\"0\"/>\n<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n",
            m.ordblks, m.fordblks);
  };
  fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n", file);
  print_free();
  print_sizes();
  fputs("</heap>\n", file);
  print_free();
  fprintf(file, "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n", m.hblks, m.hblkhd);
  print_sizes();
  fputs("</malloc>\n", file);
  return 0;
}

EXPORT void malloc_stats() {
  struct mallinfo2 m = measure();
  auto print = [](const char* title, size_t bytes, size_t used) {
    fprintf(stderr, "%s\nsystem bytes     = %10zu\nin use bytes     = %10zu\n", title, bytes, used);
  };
  print("Arena 0:", m.arena, m.uordblks);
  print("Total (incl. mmap):", m.arena + m.hblkhd, m.uordblks + m.hblkhd);
  fprintf(stderr, "max mmap regions = %10zu\nmax mmap bytes   = %10zu\n", m.hblks, m.hblkhd);
}
