// A thread of Farside's in the process of another program. libc does not know it: a program whose last thread ends
// still ends, no credential change is broadcast to it, and `__libc_single_threaded` stays true. It has a stack and
// thread-local storage of its own, blocks all signals, and its system calls are not trapped.
//
// What runs on it must not use what libc and the C++ runtime keep for their threads: their locks and allocator, which
// may believe that there is one thread only; function-local statics, whose guards believe the same; cancellation;
// thread-local storage of libraries that are loaded later.
//
// Where libc or the processor is another, and under sanitizers, it is an ordinary thread.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farside {

class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  ~ServiceThread();

  // Allocates the memory of the next start(), which then is async-signal-safe. False: out of memory, or it cannot be.
  bool prepare();
  // Runs task(argument). 0 or -errno. What libc allocates for it must be near. Its memory is kept for the next start.
  int start(void (*task)(void*), void* argument);
  // Waits until it has ended, and the kernel no longer counts it among the process's threads.
  void join();
  // In the child of a fork, which does not have the thread. Async-signal-safe.
  void reset_in_child();

  // Which threads of this process are service threads. Async-signal-safe.
  static bool is_one(int tid);
  static unsigned count();
  static unsigned count_alive();  // without those that have ended and that join() has not seen yet

 private:
  struct Task {
    void (*function)(void*);
    void* argument;
  };

  int start_unknown(Task task);
  bool allocate();
  void free_memory();

  std::byte* stack_ = nullptr;
  void* storage_ = nullptr;         // the thread pointer
  std::atomic<uint32_t> alive_{0};  // cleared by the kernel when the thread has ended
  int tid_ = 0;
  pthread_t known_{};  // where it is an ordinary thread
  bool is_known_ = false;
  bool is_outdated_ = false;  // the storage has the values of a thread of the parent process
  Task task_{};
};

}  // namespace farside
