// Thread-local storage for threads that libc does not know. Needs glibc, which offers these functions to its own parts.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside {

// True if the functions below exist. Not async-signal-safe at its first call.
bool can_make_thread_storage();

// Storage with the initial values of all thread-local variables, and the stack and pointer guards of the calling
// thread, which must have storage of libc's kind. The result is the thread pointer; nullptr: out of memory. libc
// allocates it with malloc, and takes a lock that only these functions and the dynamic linker take. Calls of threads
// that libc does not know must exclude each other.
void* make_thread_storage();
void free_thread_storage(void* thread_pointer);

// ---- Own storage ----
//
// A program may create threads, and processes in its memory, by clone without CLONE_SETTLS. They run with the thread
// pointer (FS) of their creator, or later with one that libc does not know, so thread-local variables would be those of
// another thread, or of none. Such a thread gets a block for the variables of this library, to which GS points, and
// of_this_thread() finds them there:
//
//   GS -> | thread_pointer | base | the library's thread-local variables, all 0 at first |
//
// A thread inherits GS. Its block is only used with the thread pointer that is noted in it. In static programs GS is
// used otherwise (preload/guard/thread/thread_pointer.h), and there are no blocks. Async-signal-safe, but the first
// function.

// Looks up where this library's variables are. False: there cannot be blocks, on this processor or kernel.
bool prepare_own_storage();

struct OwnStorage {
  uint64_t thread_pointer;  // FS of the thread
  uint64_t base;            // what the variables are relative to in place of it
};

// The block of this number, below `count`, for a new thread. nullptr: out of memory, or not prepared. Callers exclude
// each other, and pass the same count.
OwnStorage* make_own_storage(size_t number, size_t count, uint64_t thread_pointer);
// By the thread itself.
void use_own_storage(OwnStorage* storage);
// The calling thread's block, or nullptr.
OwnStorage* own_storage();
uint64_t thread_pointer();

// All blocks; 0 bytes: there are none. Also used by assembly.
extern "C" {
extern __attribute__((visibility("hidden"))) uint64_t farside_blocks, farside_block_bytes;
}

// The calling thread's variable.
template <typename T>
T& of_this_thread(T& variable) {
  if (__atomic_load_n(&farside_block_bytes, __ATOMIC_RELAXED) == 0) [[likely]]
    return variable;
  OwnStorage* storage = own_storage();
  if (!storage) return variable;
  uint64_t assumed;  // by the compiler, for the thread pointer
  asm volatile("movq %%fs:0, %0" : "=r"(assumed));
  return *reinterpret_cast<T*>(reinterpret_cast<uint64_t>(&variable) - assumed + storage->base);
}

}  // namespace farside
