// The malloc family of the program, with the results of glibc: sizes, alignments, errors and errno. Each function is a
// thread-local test (far_heap.h) and a call of jemalloc.
#include <gnu/libc-version.h>
#include <malloc.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/bits.h"
#include "preload/heap/far_heap.h"
#include "preload/trace/trace.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace farside::preload;  // NOLINT: this file only forwards

namespace {

// glibc's blocks are aligned to this. jemalloc's are, but for those of its smallest class.
constexpr size_t kAlignment = 16;
size_t block_size(size_t bytes) { return bytes < kAlignment ? kAlignment : bytes; }

void* or_no_memory(void* memory) {
  if (__builtin_expect(!memory, 0)) errno = ENOMEM;
  return memory;
}

void* near_malloc(size_t bytes) { return or_no_memory(far_je_mallocx(bytes, near_flags())); }

// Reports an allocation to the recorder of `farside trace`. Returns the memory.
void* traced(void* memory, size_t bytes) {
  if (tracing()) trace_allocation(memory, bytes);
  return memory;
}

template <typename Allocate>
__attribute__((noinline, cold)) void* allocate_again(size_t bytes, int saved_errno, Allocate allocate) {
  void* memory = nullptr;
  if (begin_last_try(bytes)) {
    memory = allocate();
    end_last_try();
  }
  errno = memory ? saved_errno : ENOMEM;
  return memory;
}

// An allocation in far memory; allocate() returns nullptr on failure.
template <typename Allocate>
void* far_memory(size_t bytes, Allocate allocate) {
  if (__builtin_expect(bytes >= kLargeBytes, 0)) purge_at_once();
  int saved_errno = errno;
  void* memory = allocate();
  if (__builtin_expect(!memory, 0)) memory = allocate_again(bytes, saved_errno, allocate);
  return traced(memory, bytes);
}

void* aligned(size_t alignment, size_t bytes) {
  if (alignment <= kAlignment) return malloc(bytes);
  if (!allocate_far()) return or_no_memory(far_je_mallocx(block_size(bytes), near_flags() | __builtin_ctzl(alignment)));
  return far_memory(bytes, [&]() -> void* {
    void* memory = nullptr;
    return far_je_posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
  });
}

bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

// Since 2.38 glibc's aligned_alloc refuses alignments that are no powers of two; before, it was memalign.
bool libc_rounds_alignments() {
  char* rest;
  unsigned long major = strtoul(gnu_get_libc_version(), &rest, 10), minor = *rest ? strtoul(rest + 1, nullptr, 10) : 0;
  return major == 2 && minor < 38;
}

}  // namespace

EXPORT void* malloc(size_t bytes) {
  size_t size = block_size(bytes);
  return allocate_far() ? far_memory(bytes, [&] { return far_je_malloc(size); }) : near_malloc(size);
}

EXPORT void* calloc(size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) return or_no_memory(nullptr);
  size_t size = block_size(total);
  if (allocate_far()) return far_memory(total, [&] { return far_je_calloc(1, size); });
  void* memory = near_malloc(size);
  return memory ? memset(memory, 0, size) : nullptr;
}

EXPORT void* realloc(void* memory, size_t bytes) {
  if (!memory) return malloc(bytes);
  if (bytes == 0) {
    free(memory);
    return nullptr;
  }
  size_t size = block_size(bytes);
  if (!allocate_far()) return or_no_memory(far_je_rallocx(memory, size, near_flags()));
  return far_memory(bytes, [&] { return far_je_realloc(memory, size); });
}

EXPORT void* reallocarray(void* memory, size_t count, size_t bytes) {
  size_t total;
  return __builtin_mul_overflow(count, bytes, &total) ? or_no_memory(nullptr) : realloc(memory, total);
}

EXPORT void free(void* memory) {
  int saved = errno;
  far_je_free(memory);
  errno = saved;
}

EXPORT void cfree(void* memory) { free(memory); }

EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  void* memory = aligned(alignment, bytes);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}

// Rounds the alignment up to a power of two.
EXPORT void* memalign(size_t alignment, size_t bytes) {
  constexpr size_t kMaxAlignment = SIZE_MAX / 2 + 1;
  if (alignment <= kMaxAlignment) return aligned(std::bit_ceil(alignment), bytes);
  errno = EINVAL;
  return nullptr;
}

EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  if (is_power_of_two(alignment) || libc_rounds_alignments()) return memalign(alignment, bytes);
  errno = EINVAL;
  return nullptr;
}

EXPORT void* valloc(size_t bytes) { return aligned(farside::kPageSize, bytes); }
EXPORT void* pvalloc(size_t bytes) {
  size_t rounded = farside::align_up(bytes, farside::kPageSize);
  return rounded < bytes ? or_no_memory(nullptr) : aligned(farside::kPageSize, rounded);
}
EXPORT size_t malloc_usable_size(void* memory) { return memory ? far_je_malloc_usable_size(memory) : 0; }

// jemalloc's public functions, for programs that were built with it.
EXPORT void* mallocx(size_t bytes, int flags) {
  return allocate_far() ? traced(far_je_mallocx(bytes, flags), bytes) : near_malloc(bytes);
}
EXPORT void* rallocx(void* memory, size_t bytes, int flags) {
  return traced(far_je_rallocx(memory, bytes, flags), bytes);
}
EXPORT size_t xallocx(void* memory, size_t bytes, size_t extra, int flags) {
  return far_je_xallocx(memory, bytes, extra, flags);
}
EXPORT size_t sallocx(const void* memory, int flags) { return far_je_sallocx(memory, flags); }
EXPORT void dallocx(void* memory, int flags) { far_je_dallocx(memory, flags); }
EXPORT void sdallocx(void* memory, size_t bytes, int flags) { far_je_sdallocx(memory, bytes, flags); }
EXPORT size_t nallocx(size_t bytes, int flags) { return far_je_nallocx(bytes, flags); }
EXPORT int mallctl(const char* name, void* old, size_t* old_size, void* value, size_t size) {
  return far_je_mallctl(name, old, old_size, value, size);
}
EXPORT int mallctlnametomib(const char* name, size_t* mib, size_t* size) {
  return far_je_mallctlnametomib(name, mib, size);
}
EXPORT int mallctlbymib(const size_t* mib, size_t count, void* old, size_t* old_size, void* value, size_t size) {
  return far_je_mallctlbymib(mib, count, old, old_size, value, size);
}
EXPORT void malloc_stats_print(void (*write)(void*, const char*), void* context, const char* options) {
  far_je_malloc_stats_print(write, context, options);
}
