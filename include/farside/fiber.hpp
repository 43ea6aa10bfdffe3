// Farside's C++ interface to fibers: <farside/fiber.h> with function objects, RAII and types. C++17, headers only.
//
//   farside::run_fibers(4, [] {
//     farside::channel<std::string> lines(16);
//     farside::fiber reader([&] {
//       while (auto line = lines.receive()) puts(line->c_str());
//     });
//     lines.send("hello");
//     lines.close();
//   });  // the destructor of `reader` joins it
//
// Names and behaviour follow the standard library: std::thread, std::mutex, std::condition_variable. fiber.h states
// what each function costs, where it may be called, and after which calls a fiber may continue on another thread.
// Thread-safe as those.
//
// Errors (a call outside of fibers, no memory for a stack, a mutex that the fiber holds already) throw
// std::system_error from constructors, spawn, run_fibers, yield, sleep_for, lock, wait, add, send and receive. The
// other functions ignore them. An exception that leaves a fiber's function ends the process.
#ifndef FARSIDE_FIBER_HPP
#define FARSIDE_FIBER_HPP

#include <farside/fiber.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace farside {

namespace detail {

inline void throw_if_error(int result, const char* what) {
  if (result < 0) throw std::system_error(-result, std::generic_category(), what);
}

template <typename Function>
void call_once(void* function) noexcept {
  std::unique_ptr<Function> owned(static_cast<Function*>(function));
  (*owned)();
}

template <typename Function>
void call_in_place(void* function) noexcept {
  (*static_cast<Function*>(function))();
}

// Owns an object of the C interface. The destructor of an object that fibers still wait for leaks it (-EBUSY).
template <typename Handle, int (*create)(Handle**), int (*destroy)(Handle*)>
class unique_handle {
 public:
  unique_handle() { throw_if_error(create(&handle_), "farside_fiber"); }
  ~unique_handle() { destroy(handle_); }
  unique_handle(const unique_handle&) = delete;
  unique_handle& operator=(const unique_handle&) = delete;
  Handle* get() const { return handle_; }

 private:
  Handle* handle_ = nullptr;
};

}  // namespace detail

// Runs function() as the first fiber on `workers` threads, the calling one included, and returns when all fibers have
// ended. workers: 1 to 256; 0: one for each processor.
template <typename Function>
void run_fibers(unsigned workers, Function function) {
  detail::throw_if_error(farside_fiber_run(workers, detail::call_in_place<Function>, &function), "farside_fiber_run");
}

namespace this_fiber {

// Lets other fibers run.
inline void yield() { detail::throw_if_error(farside_fiber_yield(), "farside_fiber_yield"); }

// Suspends the calling fiber for at least this time.
template <typename Rep, typename Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
  auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  detail::throw_if_error(farside_fiber_sleep(ns > 0 ? static_cast<uint64_t>(ns) : 0), "farside_fiber_sleep");
}

}  // namespace this_fiber

// While one exists, a page fault of the calling fiber stops its worker instead of suspending the fiber: see
// farside_fiber_hold.
class fiber_hold {
 public:
  fiber_hold() { farside_fiber_hold(); }
  ~fiber_hold() { farside_fiber_release(); }
  fiber_hold(const fiber_hold&) = delete;
  fiber_hold& operator=(const fiber_hold&) = delete;
};

// The owner of a fiber; the destructor joins it. Movable, not copyable.
class fiber {
 public:
  fiber() = default;
  template <typename Function, typename = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, fiber>>>
  explicit fiber(Function&& function) {
    using Stored = std::decay_t<Function>;
    auto owned = std::make_unique<Stored>(std::forward<Function>(function));
    detail::throw_if_error(farside_fiber_spawn(&handle_, detail::call_once<Stored>, owned.get()),
                           "farside_fiber_spawn");
    owned.release();
  }
  fiber(fiber&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  fiber& operator=(fiber&& other) noexcept {
    if (this != &other) {
      join();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~fiber() { join(); }

  bool joinable() const { return handle_; }
  // join and detach do nothing if the fiber was joined, detached, moved from or never started.
  void join() {
    if (handle_) farside_fiber_join(std::exchange(handle_, nullptr));
  }
  void detach() {
    if (handle_) farside_fiber_detach(std::exchange(handle_, nullptr));
  }

 private:
  farside_fiber* handle_ = nullptr;
};

// Starts a detached fiber.
template <typename Function>
void spawn(Function&& function) {
  fiber(std::forward<Function>(function)).detach();
}

// A mutex for fibers, usable with std::lock_guard and std::unique_lock. Not recursive; fibers get it in the order of
// their calls.
class mutex {
 public:
  void lock() { detail::throw_if_error(farside_fiber_mutex_lock(handle_.get()), "farside_fiber_mutex_lock"); }
  bool try_lock() { return farside_fiber_mutex_trylock(handle_.get()) == 0; }
  void unlock() { farside_fiber_mutex_unlock(handle_.get()); }
  farside_fiber_mutex* handle() { return handle_.get(); }

 private:
  detail::unique_handle<farside_fiber_mutex, farside_fiber_mutex_create, farside_fiber_mutex_destroy> handle_;
};

// Wakes fibers in the order of their calls, without spurious wake-ups.
class condition_variable {
 public:
  // The caller holds the mutex; it is unlocked while the fiber waits.
  void wait(mutex& m) {
    detail::throw_if_error(farside_fiber_condition_wait(handle_.get(), m.handle()), "farside_fiber_condition_wait");
  }
  template <typename Predicate>
  void wait(mutex& m, Predicate done) {
    while (!done()) wait(m);
  }
  void notify_one() { farside_fiber_condition_signal(handle_.get()); }
  void notify_all() { farside_fiber_condition_broadcast(handle_.get()); }

 private:
  detail::unique_handle<farside_fiber_condition, farside_fiber_condition_create, farside_fiber_condition_destroy>
      handle_;
};

// A count that begins at zero, and fibers that wait until it is zero.
class wait_group {
 public:
  void add(int64_t count = 1) {
    detail::throw_if_error(farside_fiber_group_add(handle_.get(), count), "farside_fiber_group_add");
  }
  void done() { add(-1); }
  void wait() { detail::throw_if_error(farside_fiber_group_wait(handle_.get()), "farside_fiber_group_wait"); }

 private:
  detail::unique_handle<farside_fiber_group, farside_fiber_group_create, farside_fiber_group_destroy> handle_;
};

// A bounded first-in-first-out queue of T for any number of senders and receivers. Each item is allocated with new.
// capacity: up to 2^24; 0: a sender waits until its item is received. The destructor destroys items that are left; no
// fiber may use the channel then.
template <typename T>
class channel {
 public:
  explicit channel(size_t capacity) {
    detail::throw_if_error(farside_fiber_channel_create(&handle_, capacity), "farside_fiber_channel_create");
  }
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  ~channel() {
    farside_fiber_channel_destroy(handle_, [](void* item) { delete static_cast<T*>(item); });
  }

  // Waits while the channel is full. False: the channel is closed, and the item is destroyed.
  bool send(T item) {
    auto owned = std::make_unique<T>(std::move(item));
    int result = farside_fiber_channel_send(handle_, owned.get());
    if (result == 0) owned.release();
    else if (result != -EPIPE) detail::throw_if_error(result, "farside_fiber_channel_send");
    return result == 0;
  }
  // Waits while the channel is empty. No value: the channel is closed and empty.
  std::optional<T> receive() {
    void* item = nullptr;
    int result = farside_fiber_channel_receive(handle_, &item);
    if (result != -EPIPE) detail::throw_if_error(result, "farside_fiber_channel_receive");
    return unpack(result, item);
  }
  // Does not wait. No value: there is no item now.
  std::optional<T> try_receive() {
    void* item = nullptr;
    int result = farside_fiber_channel_try_receive(handle_, &item);
    return unpack(result, item);
  }
  // Later sends fail. Items in the channel can still be received.
  void close() { farside_fiber_channel_close(handle_); }

 private:
  static std::optional<T> unpack(int result, void* item) {
    if (result != 0) return std::nullopt;
    std::unique_ptr<T> owned(static_cast<T*>(item));
    return std::optional<T>(std::move(*owned));
  }
  farside_fiber_channel* handle_ = nullptr;
};

}  // namespace farside

#endif
