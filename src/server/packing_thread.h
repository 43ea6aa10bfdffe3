// The thread that compresses cold pages of all regions (memory/packer.h). It leaves the processor to others: it has a
// low priority, and works half of the time at most.
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
  void pack_until(uint64_t time);

  MemoryPool* const pool_;
  const uint64_t epoch_ns_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace farside::server
