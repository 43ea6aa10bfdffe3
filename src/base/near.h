// Memory that is always near, for all data of the pager, the transports and the guard: their code runs during page
// faults and must not cause one. An allocator over mmap with power-of-two size classes; memory is zeroed. It counts its
// size, so that the frame budget includes metadata.
//   Cost: a spin lock and a free list; above 64 KiB one mmap. Thread-safe. Not reentrant: a signal handler may use it
//   only if it cannot have interrupted the allocator itself (no handler of the program runs within a fault).
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace farside {

// Never returns nullptr: without memory the process ends with a message. Aligned to 16 bytes; from one page up, to a
// page. near_free takes the size that was allocated; nullptr is ignored.
void* near_alloc(size_t bytes);
void near_free(void* memory, size_t bytes);

// Bytes mapped from the kernel and not unmapped since.
size_t near_bytes();

// Called before and after a fork: the allocator's lock is held meanwhile, so that the child's copy is consistent.
// near_after_fork is called in parent and child.
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
