// Memory that is always near: for everything that the pager, the transports and the guard keep, since their code runs
// under faults and must never fault itself. A small allocator over mmap with power-of-two size classes; memory is
// zeroed. Counts what it holds, so that the frame budget can include metadata.
//   cost: a spin lock and a list pop; above 64 KiB one mmap. Thread-safe. Not async-signal-safe against itself: a
//   signal handler may call it only if the interrupted code cannot (no handler of the program runs within a fault).
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace farside {

// Never returns nullptr: without memory for its own tables Farside cannot go on and says so. 16-byte aligned, page
// aligned from one page up.
void* near_alloc(size_t bytes);
void near_free(void* memory, size_t bytes);

// Bytes that the allocator has taken from the kernel and not given back.
size_t near_bytes();

// Around a fork: keeps other threads out, so that the child's copy is whole. near_after_fork runs on both sides.
void near_before_fork();
void near_after_fork();

// Base of classes whose objects must be near: `class X : public NearObject`.
struct NearObject {
  static void* operator new(size_t bytes) { return near_alloc(bytes); }
  static void operator delete(void* memory, size_t bytes) { near_free(memory, bytes); }
  static void* operator new(size_t, void* place) { return place; }
};

// For standard containers.
template <typename T>
struct NearAllocator {
  using value_type = T;
  NearAllocator() = default;
  template <typename U>
  NearAllocator(const NearAllocator<U>&) {}  // NOLINT: implicit by the allocator requirements
  T* allocate(size_t count) { return static_cast<T*>(near_alloc(count * sizeof(T))); }
  void deallocate(T* memory, size_t count) { near_free(memory, count * sizeof(T)); }
  template <typename U>
  bool operator==(const NearAllocator<U>&) const {
    return true;
  }
};

}  // namespace farside
