// A reader-writer lock that is granted in the order of the calls. Neither readers nor writers can keep a thread out: it
// waits for those that called before it. Each of them holds it for a bounded time (piece.h). The names of the functions
// are those that std::unique_lock and std::shared_lock call.
#pragma once
#include <atomic>
#include <cstdint>

namespace farside::server {

class FairLock {
 public:
  void lock() {
    enter();
    for (uint32_t now; (now = readers_.load(std::memory_order_acquire)) != 0;) readers_.wait(now);
  }
  void unlock() { leave(); }

  void lock_shared() {
    enter();
    readers_.fetch_add(1, std::memory_order_relaxed);  // leave() publishes it to the next writer
    leave();
  }
  void unlock_shared() {
    if (readers_.fetch_sub(1, std::memory_order_release) == 1) readers_.notify_all();
  }

 private:
  void enter() {
    uint32_t own = next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t now; (now = turn_.load(std::memory_order_acquire)) != own;) turn_.wait(now);
  }
  void leave() {
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
  }

  std::atomic<uint32_t> next_{0}, turn_{0};  // tickets; a writer keeps its turn until unlock()
  std::atomic<uint32_t> readers_{0};
};

}  // namespace farside::server
