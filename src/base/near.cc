#include "base/near.h"

#include <atomic>
#include <bit>
#include <cstring>

#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/sync.h"

namespace farside {
namespace {

constexpr size_t kSmallest = 16;
constexpr size_t kLargestClass = 64 * kKiB;
constexpr size_t kClasses = std::countr_zero(kLargestClass) - std::countr_zero(kSmallest) + 1;
constexpr size_t kChunk = 256 * kKiB;

struct FreeBlock {
  FreeBlock* next;
};

// Constant-initialized, so usable before any constructor of the process.
SpinLock g_lock;
FreeBlock* g_free[kClasses] GUARDED_BY(g_lock);
std::byte* g_bump GUARDED_BY(g_lock);
std::byte* g_bump_end GUARDED_BY(g_lock);
std::atomic<size_t> g_bytes;

size_t class_of(size_t bytes) {
  size_t rounded = std::bit_ceil(bytes < kSmallest ? kSmallest : bytes);
  return static_cast<size_t>(std::countr_zero(rounded) - std::countr_zero(kSmallest));
}

void* map_or_die(size_t bytes) {
  void* memory = os::map_near(bytes);
  if (!memory) die("out of memory: cannot map {} bytes for Farside's own tables; give the process more memory", bytes);
  g_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

// A block of class_bytes from the current chunk, aligned to its size, at most to a page.
void* bump(size_t class_bytes) REQUIRES(g_lock) {
  size_t alignment = class_bytes < kPageSize ? class_bytes : kPageSize;
  auto address = align_up(reinterpret_cast<uintptr_t>(g_bump), alignment);
  if (!g_bump || address + class_bytes > reinterpret_cast<uintptr_t>(g_bump_end)) {
    g_bump = static_cast<std::byte*>(map_or_die(kChunk));
    g_bump_end = g_bump + kChunk;
    address = reinterpret_cast<uintptr_t>(g_bump);
  }
  g_bump = reinterpret_cast<std::byte*>(address + class_bytes);
  return reinterpret_cast<void*>(address);
}

}  // namespace

void* near_alloc(size_t bytes) {
  if (bytes > kLargestClass) return map_or_die(align_up(bytes, kPageSize));
  size_t index = class_of(bytes);
  size_t class_bytes = kSmallest << index;
  FARSIDE_DCHECK(index < kClasses && class_bytes >= bytes);
  g_lock.lock();
  FreeBlock* block = g_free[index];
  if (block) g_free[index] = block->next;
  void* memory = block ? block : bump(class_bytes);
  g_lock.unlock();
  if (block) memset(memory, 0, class_bytes);
  return memory;
}

void near_free(void* memory, size_t bytes) {
  if (!memory) return;
  if (bytes > kLargestClass) {
    FARSIDE_CHECK(near_bytes() >= align_up(bytes, kPageSize));
    os::unmap(memory, align_up(bytes, kPageSize));
    g_bytes.fetch_sub(align_up(bytes, kPageSize), std::memory_order_relaxed);
    return;
  }
  size_t index = class_of(bytes);
  FARSIDE_DCHECK(is_aligned(reinterpret_cast<uintptr_t>(memory), kSmallest));
  auto* block = static_cast<FreeBlock*>(memory);
  g_lock.lock();
  block->next = g_free[index];
  g_free[index] = block;
  g_lock.unlock();
}

size_t near_bytes() { return g_bytes.load(std::memory_order_relaxed); }

// Not analyzed: between the two is a fork.
void near_before_fork() NO_THREAD_SAFETY_ANALYSIS { g_lock.lock(); }
void near_after_fork() NO_THREAD_SAFETY_ANALYSIS { g_lock.unlock(); }

}  // namespace farside
