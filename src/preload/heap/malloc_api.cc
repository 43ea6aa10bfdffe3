// The malloc family and operator new of the program. Each is a thread-local test (far_heap.h) and a call of jemalloc.
#include <malloc.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/bits.h"
#include "preload/heap/far_heap.h"
#include "preload/trace/trace.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace farside::preload;  // NOLINT: this file only forwards

namespace {

void* near_malloc(size_t bytes) { return far_je_mallocx(bytes ? bytes : 1, near_flags()); }

// Reports an allocation to the recorder of `farside trace`. Returns the memory.
void* traced(void* memory, size_t bytes) {
  if (tracing()) trace_allocation(memory, bytes);
  return memory;
}

// An allocation in far memory; allocate() returns nullptr on failure.
template <typename Allocate>
void* far_memory(size_t bytes, Allocate allocate) {
  if (__builtin_expect(bytes >= kLargeBytes, 0)) purge_at_once();
  void* memory = allocate();
  if (__builtin_expect(!memory, 0) && begin_last_try(bytes)) {
    memory = allocate();
    end_last_try();
  }
  return traced(memory, bytes);
}

void* aligned(size_t alignment, size_t bytes) {
  if (!allocate_far()) return far_je_mallocx(bytes ? bytes : 1, near_flags() | __builtin_ctzl(alignment));
  return far_memory(bytes, [&]() -> void* {
    void* memory = nullptr;
    int error = far_je_posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes);
    if (error) errno = error;
    return error ? nullptr : memory;
  });
}

bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

void* new_or_throw(size_t bytes, size_t alignment) {
  for (;;) {
    void* memory = alignment ? aligned(alignment, bytes) : malloc(bytes);
    if (memory) return memory;
    std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

void* new_or_null(size_t bytes, size_t alignment) noexcept {
  try {
    return new_or_throw(bytes, alignment);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

EXPORT void* malloc(size_t bytes) {
  return allocate_far() ? far_memory(bytes, [&] { return far_je_malloc(bytes); }) : near_malloc(bytes);
}

EXPORT void* calloc(size_t count, size_t bytes) {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) {
    errno = ENOMEM;
    return nullptr;
  }
  if (allocate_far()) return far_memory(total, [&] { return far_je_calloc(count, bytes); });
  void* memory = near_malloc(total);
  return memory ? memset(memory, 0, total) : nullptr;
}

EXPORT void* realloc(void* memory, size_t bytes) {
  if (allocate_far()) {
    if (memory && bytes == 0) return far_je_realloc(memory, bytes);  // which frees it
    void* moved = far_memory(bytes, [&] { return far_je_realloc(memory, bytes); });
    if (!moved) errno = ENOMEM;  // jemalloc does not set errno here
    return moved;
  }
  if (!memory) return near_malloc(bytes);
  if (bytes == 0) {
    far_je_free(memory);
    return nullptr;
  }
  return far_je_rallocx(memory, bytes, near_flags());
}

EXPORT void* reallocarray(void* memory, size_t count, size_t bytes) {
  size_t total;
  if (!__builtin_mul_overflow(count, bytes, &total)) return realloc(memory, total);
  errno = ENOMEM;
  return nullptr;
}

EXPORT void free(void* memory) {
  int saved = errno;
  far_je_free(memory);
  errno = saved;
}

EXPORT void cfree(void* memory) { free(memory); }

EXPORT int posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  int saved = errno;
  void* memory = aligned(alignment, bytes);
  errno = saved;
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}

EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  if (is_power_of_two(alignment)) return aligned(alignment, bytes);
  errno = EINVAL;
  return nullptr;
}

EXPORT void* memalign(size_t alignment, size_t bytes) {
  size_t power = 16;
  while (power < alignment && power != 0) power *= 2;  // glibc rounds up
  return aligned_alloc(power, bytes);
}

EXPORT void* valloc(size_t bytes) { return aligned(farside::kPageSize, bytes); }
EXPORT void* pvalloc(size_t bytes) { return aligned(farside::kPageSize, farside::align_up(bytes, farside::kPageSize)); }
EXPORT size_t malloc_usable_size(void* memory) { return memory ? far_je_malloc_usable_size(memory) : 0; }

EXPORT int malloc_trim(size_t) {
  far_je_mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: MALLCTL_ARENAS_ALL
  return 1;
}

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

#define EXPORT_CXX __attribute__((visibility("default")))
EXPORT_CXX void* operator new(size_t n) { return new_or_throw(n, 0); }
EXPORT_CXX void* operator new[](size_t n) { return new_or_throw(n, 0); }
EXPORT_CXX void* operator new(size_t n, const std::nothrow_t&) noexcept { return new_or_null(n, 0); }
EXPORT_CXX void* operator new[](size_t n, const std::nothrow_t&) noexcept { return new_or_null(n, 0); }
EXPORT_CXX void* operator new(size_t n, std::align_val_t a) { return new_or_throw(n, static_cast<size_t>(a)); }
EXPORT_CXX void* operator new[](size_t n, std::align_val_t a) { return new_or_throw(n, static_cast<size_t>(a)); }
EXPORT_CXX void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return new_or_null(n, static_cast<size_t>(a));
}
EXPORT_CXX void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return new_or_null(n, static_cast<size_t>(a));
}
EXPORT_CXX void operator delete(void* p) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete[](void* p) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete(void* p, size_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete[](void* p, size_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete(void* p, std::align_val_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete[](void* p, std::align_val_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete(void* p, size_t, std::align_val_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete[](void* p, size_t, std::align_val_t) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete(void* p, const std::nothrow_t&) noexcept { far_je_free(p); }
EXPORT_CXX void operator delete[](void* p, const std::nothrow_t&) noexcept { far_je_free(p); }
