// The thread that compresses cold pages of all regions (memory/packer.h). It leaves the processor to others: it has a
// low priority, works half of the time at most, and looks for cold pages a fiftieth of the time at most.
#pragma once
#include <atomic>
#include <thread>

#include "server/regions/memory_pool.h"

namespace farside::server {

class PackingThread {
 public:
  PackingThread(MemoryPool* pool, uint64_t epoch_ns) : pool_(pool), epoch_ns_(epoch_ns), thread_([this] { run(); }) {}
  ~PackingThread();
  PackingThread(const PackingThread&) = delete;
  PackingThread& operator=(const PackingThread&) = delete;

 private:
  void run();
  void work();
  void sleep();

  MemoryPool* const pool_;
  const uint64_t epoch_ns_;
  std::atomic<bool> stopping_{false};
  // Used by the thread. Times of now_ns().
  uint64_t next_epoch_ = 0, next_pass_ = 0;
  bool passing_ = false;
  uint64_t looked_ns_ = 0;  // in this pass, without finding anything
  std::thread thread_;
};

}  // namespace farside::server
