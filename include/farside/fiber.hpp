// Farside's fibers for C++: <farside/fiber.h> with lambdas, RAII and types. Headers only.
//
//   farside::fiber::run(4, [] {
//     farside::fiber::Channel<std::string> lines(16);
//     farside::fiber::Fiber reader([&] { while (auto line = lines.receive()) use(*line); });
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

namespace farside::fiber {

namespace detail {

inline void check(int result, const char* what) {
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

template <typename Handle, int (*destroy)(Handle*)>
struct Destroy {
  void operator()(Handle* handle) const { destroy(handle); }
};

}  // namespace detail

// Runs function as the first fiber; returns when all fibers have ended. workers 0: one a processor.
template <typename Function>
void run(unsigned workers, Function function) {
  detail::check(farside_fiber_run(workers, detail::call_in_place<Function>, &function), "farside_fiber_run");
}

inline void yield() { detail::check(farside_fiber_yield(), "farside_fiber_yield"); }

template <typename Rep, typename Period>
void sleep(std::chrono::duration<Rep, Period> time) {
  auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  detail::check(farside_fiber_sleep(ns > 0 ? static_cast<uint64_t>(ns) : 0), "farside_fiber_sleep");
}

// While it lives, a fault on far memory stops the whole worker: see farside_fiber_hold.
class Hold {
 public:
  Hold() { farside_fiber_hold(); }
  ~Hold() { farside_fiber_release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

// A fiber that is joined when this goes out of scope.
class Fiber {
 public:
  Fiber() = default;
  template <typename Function, typename = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, Fiber>>>
  explicit Fiber(Function&& function) {
    using Stored = std::decay_t<Function>;
    auto owned = std::make_unique<Stored>(std::forward<Function>(function));
    detail::check(farside_fiber_spawn(&handle_, detail::call_once<Stored>, owned.get()), "farside_fiber_spawn");
    owned.release();
  }
  Fiber(Fiber&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Fiber& operator=(Fiber&& other) noexcept {
    if (this != &other) {
      join();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Fiber() { join(); }

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
  Fiber(std::forward<Function>(function)).detach();
}

// For std::lock_guard and std::unique_lock.
class Mutex {
 public:
  void lock() { detail::check(farside_fiber_mutex_lock(handle_.get()), "farside_fiber_mutex_lock"); }
  bool try_lock() { return farside_fiber_mutex_trylock(handle_.get()) == 0; }
  void unlock() { farside_fiber_mutex_unlock(handle_.get()); }
  farside_fiber_mutex* handle() { return handle_.get(); }

 private:
  std::unique_ptr<farside_fiber_mutex, detail::Destroy<farside_fiber_mutex, farside_fiber_mutex_destroy>> handle_{
      farside_fiber_mutex_create()};
};

class ConditionVariable {
 public:
  // The caller holds the mutex.
  void wait(Mutex& mutex) {
    detail::check(farside_fiber_condition_wait(handle_.get(), mutex.handle()), "farside_fiber_condition_wait");
  }
  template <typename Predicate>
  void wait(Mutex& mutex, Predicate done) {
    while (!done()) wait(mutex);
  }
  void notify_one() { farside_fiber_condition_signal(handle_.get()); }
  void notify_all() { farside_fiber_condition_broadcast(handle_.get()); }

 private:
  std::unique_ptr<farside_fiber_condition, detail::Destroy<farside_fiber_condition, farside_fiber_condition_destroy>>
      handle_{farside_fiber_condition_create()};
};

class WaitGroup {
 public:
  void add(int64_t count = 1) {
    detail::check(farside_fiber_group_add(handle_.get(), count), "farside_fiber_group_add");
  }
  void done() { add(-1); }
  void wait() { detail::check(farside_fiber_group_wait(handle_.get()), "farside_fiber_group_wait"); }

 private:
  std::unique_ptr<farside_fiber_group, detail::Destroy<farside_fiber_group, farside_fiber_group_destroy>> handle_{
      farside_fiber_group_create()};
};

// A queue of T for any number of senders and receivers. capacity 0: a sender waits until its item is received.
template <typename T>
class Channel {
 public:
  explicit Channel(size_t capacity) : handle_(farside_fiber_channel_create(capacity)) {
    detail::check(handle_ ? 0 : -EINVAL, "farside_fiber_channel_create");
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() {
    farside_fiber_channel_destroy(handle_, [](void* item) { delete static_cast<T*>(item); });
  }

  // False: the channel is closed.
  bool send(T item) {
    auto owned = std::make_unique<T>(std::move(item));
    int result = farside_fiber_channel_send(handle_, owned.get());
    if (result == 0) owned.release();
    else if (result != -EPIPE) detail::check(result, "farside_fiber_channel_send");
    return result == 0;
  }
  // Nothing: the channel is closed and empty.
  std::optional<T> receive() {
    void* item = nullptr;
    int result = farside_fiber_channel_receive(handle_, &item);
    if (result != -EPIPE) detail::check(result, "farside_fiber_channel_receive");
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
  farside_fiber_channel* handle_;
};

}  // namespace farside::fiber

#endif
