// Farside's fibers for C++: <farside/fiber.h> with lambdas, RAII and types. Headers only.
//
//   farside::run_fibers(4, [] {
//     farside::channel<std::string> lines(16);
//     farside::fiber reader([&] { while (auto line = lines.receive()) use(*line); });
//     lines.send("hello");
//     lines.close();
//   });   // reader is joined by its destructor
//
// Errors that a caller can do nothing about (no memory for a stack, a call outside of fibers) throw std::system_error.
// An exception that leaves a fiber's function ends the process, as it does for std::thread.
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

// A handle of the C interface that is destroyed with its owner.
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

// Runs function as the first fiber; returns when all fibers have ended. workers 0: one a processor.
template <typename Function>
void run_fibers(unsigned workers, Function function) {
  detail::throw_if_error(farside_fiber_run(workers, detail::call_in_place<Function>, &function), "farside_fiber_run");
}

namespace this_fiber {

// Lets other fibers run.
inline void yield() { detail::throw_if_error(farside_fiber_yield(), "farside_fiber_yield"); }

// Lets other fibers run for at least so long.
template <typename Rep, typename Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
  auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  detail::throw_if_error(farside_fiber_sleep(ns > 0 ? static_cast<uint64_t>(ns) : 0), "farside_fiber_sleep");
}

}  // namespace this_fiber

// While it lives, a fault on far memory stops the whole worker: see farside_fiber_hold.
class fiber_hold {
 public:
  fiber_hold() { farside_fiber_hold(); }
  ~fiber_hold() { farside_fiber_release(); }
  fiber_hold(const fiber_hold&) = delete;
  fiber_hold& operator=(const fiber_hold&) = delete;
};

// A fiber that is joined when this goes out of scope.
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
  // Does nothing for a fiber that was joined, detached, moved away or never started.
  void join() {
    if (handle_) farside_fiber_join(std::exchange(handle_, nullptr));
  }
  void detach() {
    if (handle_) farside_fiber_detach(std::exchange(handle_, nullptr));
  }

 private:
  farside_fiber* handle_ = nullptr;
};

// Starts a fiber that nobody joins.
template <typename Function>
void spawn(Function&& function) {
  fiber(std::forward<Function>(function)).detach();
}

// For std::lock_guard and std::unique_lock.
class mutex {
 public:
  void lock() { detail::throw_if_error(farside_fiber_mutex_lock(handle_.get()), "farside_fiber_mutex_lock"); }
  bool try_lock() { return farside_fiber_mutex_trylock(handle_.get()) == 0; }
  void unlock() { farside_fiber_mutex_unlock(handle_.get()); }
  farside_fiber_mutex* handle() { return handle_.get(); }

 private:
  detail::unique_handle<farside_fiber_mutex, farside_fiber_mutex_create, farside_fiber_mutex_destroy> handle_;
};

class condition_variable {
 public:
  // The caller holds the mutex.
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

// A queue of T for any number of senders and receivers. capacity 0: a sender waits until its item is received.
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

  // False: the channel is closed.
  bool send(T item) {
    auto owned = std::make_unique<T>(std::move(item));
    int result = farside_fiber_channel_send(handle_, owned.get());
    if (result == 0) owned.release();
    else if (result != -EPIPE) detail::throw_if_error(result, "farside_fiber_channel_send");
    return result == 0;
  }
  // Nothing: the channel is closed and empty.
  std::optional<T> receive() {
    void* item = nullptr;
    int result = farside_fiber_channel_receive(handle_, &item);
    if (result != -EPIPE) detail::throw_if_error(result, "farside_fiber_channel_receive");
    return unpack(result, item);
  }
  // Nothing: there is no item now.
  std::optional<T> try_receive() {
    void* item = nullptr;
    int result = farside_fiber_channel_try_receive(handle_, &item);
    return unpack(result, item);
  }
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
