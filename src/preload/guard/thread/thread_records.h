// What is kept for each thread that the program starts, and released only when the thread has disappeared: its
// alternate signal stack, on which it may run to its end; and near memory that the kernel accesses by itself, outside
// of its system calls, where it cannot wait for a page that is far.
//
// Async-signal-safe, except use_record and take_record in static programs.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/thread_storage.h"

namespace farside::preload {

// Memory that stays near as long as the thread exists.
enum class Kept {
  kStorage,   // thread-local storage, which contains the guard's selector
  kWord,      // cleared when the thread ends; its number
  kSequence,  // the area of restartable sequences
  kRobust,    // from here on: what the list of robust mutexes refers to, when the thread ends
};

struct ThreadRecord {
  struct Range {
    void* address;
    uint64_t bytes;
  };
  static constexpr size_t kRanges = 12;
  std::byte* stack;
  std::atomic<int> tid;  // 0: free, -1: taken for a thread that does not run yet
  void* storage;         // Farside's thread-local storage of a thread of a static program
  Range kept[kRanges];
};

// For a thread that is about to be created. It is marked as taken until the thread calls use_record.
ThreadRecord* take_record();
// For a thread with this thread pointer, which is not its own or not libc's (base/thread_storage.h). nullptr: there is
// no such storage here.
OwnStorage* make_own_storage(ThreadRecord* record, uint64_t thread_pointer);
// By the thread: stores its id, and registers its alternate stack with the kernel.
void use_record(ThreadRecord* record);
// The calling thread's, or nullptr.
ThreadRecord* own_record();

// Pins memory for the thread, in place of what was pinned for the same purpose. Address 0: nothing.
void keep_near(ThreadRecord* record, Kept purpose, uint64_t address, uint64_t bytes);
// A thread whose stack is far memory has its thread-local storage at the top of the stack.
void keep_thread_storage(ThreadRecord* record, uint64_t stack_pointer, uint64_t thread_pointer);
// To be called by a thread that ends: the kernel will walk its list of robust mutexes.
void keep_robust_list_near();

// For a fork: the child must not inherit the lock held by a thread that it does not have. In the child the calling
// thread has a new id, and the records of all other threads are free.
void lock_thread_records();
void unlock_thread_records();
void keep_own_record_in_child();

}  // namespace farside::preload
