// Locks built on atomics and on futexes through base/os.h. They call nothing in libc, so the syscall guard does not
// intercept them, and they may be used where libc may not be called. The lock order is in docs/internals/locking.md.
#pragma once
#include <signal.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread_annotations.h"

namespace farside {

// For critical sections of a few dozen instructions. Not held across a system call or a fault.
class CAPABILITY("lock") SpinLock {
 public:
  void lock() ACQUIRE() {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      for (int spins = 0; locked_.load(std::memory_order_relaxed); spins++) {
        if (spins < 100) cpu_relax();
        else os::sched_yield();
      }
    }
  }
  bool try_lock() TRY_ACQUIRE(true) { return !locked_.exchange(true, std::memory_order_acquire); }
  void unlock() RELEASE() {
    FARSIDE_DCHECK(is_locked());
    locked_.store(false, std::memory_order_release);
  }
  // Held by any thread. For assertions.
  void assert_held() const ASSERT_CAPABILITY(this) { FARSIDE_DCHECK(is_locked()); }
  bool is_locked() const { return locked_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> locked_{false};
};

// A lock whose waiters sleep. Not recursive.
class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() {
    uint32_t expected = 0;
    if (word_.compare_exchange_strong(expected, 1, std::memory_order_acquire)) return;
    while (word_.exchange(2, std::memory_order_acquire) != 0) os::futex_wait(raw(), 2, nullptr);
  }
  bool try_lock() TRY_ACQUIRE(true) {
    uint32_t expected = 0;
    return word_.compare_exchange_strong(expected, 1, std::memory_order_acquire);
  }
  void unlock() RELEASE() {
    uint32_t before = word_.exchange(0, std::memory_order_release);
    FARSIDE_CHECK(before != 0);
    if (before == 2) os::futex_wake(raw(), 1);
  }
  // Held by any thread. For assertions.
  void assert_held() const ASSERT_CAPABILITY(this) { FARSIDE_DCHECK(is_locked()); }
  bool is_locked() const { return word_.load(std::memory_order_relaxed) != 0; }

 private:
  const uint32_t* raw() const { return reinterpret_cast<const uint32_t*>(&word_); }
  std::atomic<uint32_t> word_{0};  // 0: free, 1: held, 2: held, and a thread may sleep
};

// A counter whose change threads can wait for: wait() returns when the value differs from `seen`, after the timeout, or
// spuriously. wake_all() makes no system call when no thread waits: both sides are sequentially consistent, so either
// wake_all() sees the waiter, or the waiter sees the new value.
class Event {
 public:
  uint32_t value() const { return word_.load(std::memory_order_acquire); }
  void wait(uint32_t seen, uint64_t timeout_ns) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    timespec t = {static_cast<time_t>(timeout_ns / 1000000000), static_cast<long>(timeout_ns % 1000000000)};
    if (word_.load(std::memory_order_seq_cst) == seen) {
      os::futex_wait(reinterpret_cast<const uint32_t*>(&word_), seen, &t);
    }
    [[maybe_unused]] uint32_t before = sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    FARSIDE_DCHECK(before > 0);
  }
  void wake_all() {
    word_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      os::futex_wake(reinterpret_cast<const uint32_t*>(&word_), 1 << 30);
    }
  }
  void reset_in_child() { sleepers_.store(0); }  // a forked child has only the forking thread

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// Blocks all signals of the calling thread, except those that report its own faults. For ordinary code that owns pages
// or holds a lock for which a fault in a signal handler would wait: that wait would never end.
class SignalsBlocked {
 public:
  static constexpr os::SignalSet kAllButFaults =
      ~(os::signal_bit(SIGBUS) | os::signal_bit(SIGSEGV) | os::signal_bit(SIGSYS) | os::signal_bit(SIGILL) |
        os::signal_bit(SIGFPE) | os::signal_bit(SIGTRAP));
  SignalsBlocked() { os::sigprocmask(SIG_BLOCK, &kAllButFaults, &before_); }
  ~SignalsBlocked() { os::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  os::SignalSet before_ = 0;
};

template <typename Lock>
class SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(Lock& lock) ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~LockGuard() RELEASE() { lock_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace farside
