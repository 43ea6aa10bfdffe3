// A kernel for discrete-event simulation. Processes are coroutines that wait for simulated time to pass. Exclusive
// resources are served in the order of arrival. A run is deterministic. Times are in microseconds. Single-threaded.
#pragma once
#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <queue>
#include <utility>
#include <vector>

namespace farside::bench::scaling {

using Time = double;

// A process, or a subroutine that another task awaits. It starts when it is awaited or passed to Simulation::start.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> continuation = std::noop_coroutine();
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
        return h.promise().continuation;
      }
      void await_resume() noexcept {}
    };
    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
    handle_.promise().continuation = awaiting;
    return handle_;
  }
  void await_resume() {}
  std::coroutine_handle<> handle() const { return handle_; }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// The clock and the queue of events. Events with the same time run in the order in which they were scheduled.
class Simulation {
 public:
  Time now() const { return now_; }
  uint64_t events() const { return sequence_; }

  void start(Task task) {
    processes_.push_back(std::move(task));
    at(now_, processes_.back().handle());
  }
  void at(Time when, std::coroutine_handle<> what) { events_.push({when, sequence_++, what}); }

  // co_await simulation.until(t): continues at that time.
  struct Until {
    Simulation& simulation;
    Time when;
    bool await_ready() const { return when <= simulation.now_; }
    void await_suspend(std::coroutine_handle<> h) { simulation.at(when, h); }
    void await_resume() {}
  };
  Until until(Time when) { return {*this, when}; }
  Until delay(Time us) { return {*this, now_ + us}; }

  // Runs the next event. False: there is none.
  bool step() {
    if (events_.empty()) return false;
    Event event = events_.top();
    events_.pop();
    now_ = event.when;
    event.what.resume();
    return true;
  }

 private:
  struct Event {
    Time when;
    uint64_t sequence;
    std::coroutine_handle<> what;
    bool operator<(const Event& o) const { return when != o.when ? when > o.when : sequence > o.sequence; }
  };
  Time now_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Task> processes_;
};

// An exclusive resource whose hold time is known when the request arrives: a cache line, a lock, a link. It is served
// in the order of arrival, so the end of a use is known at once and takes one event.
class Serial {
 public:
  // Queues behind the earlier uses, then holds the resource for `us`. Returns the time at which the use ends.
  Time use(Time now, Time us) {
    free_at_ = std::max(now, free_at_) + us;
    busy_ += us;
    uses_++;
    return free_at_;
  }
  Time free_at() const { return free_at_; }
  Time busy() const { return busy_; }
  uint64_t uses() const { return uses_; }

  unsigned last_core = kNoCore;  // core whose cache holds the line
  static constexpr unsigned kNoCore = ~0u;

 private:
  Time free_at_ = 0, busy_ = 0;
  uint64_t uses_ = 0;
};

// Processes that sleep until they are woken, in the order in which they went to sleep.
class Sleepers {
 public:
  struct Sleep {
    Sleepers& sleepers;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> h) { sleepers.asleep_.push_back(h); }
    void await_resume() {}
  };
  Sleep sleep() { return {*this}; }
  size_t count() const { return asleep_.size(); }
  // Wakes the longest sleepers. The first continues at `first`, and each further one `apart` later.
  void wake(Simulation& simulation, size_t max_count, Time first, Time apart) {
    size_t woken = std::min(max_count, asleep_.size());
    for (size_t i = 0; i < woken; i++) simulation.at(first + static_cast<Time>(i) * apart, asleep_[i]);
    asleep_.erase(asleep_.begin(), asleep_.begin() + static_cast<ptrdiff_t>(woken));
  }

 private:
  std::vector<std::coroutine_handle<>> asleep_;
};

}  // namespace farside::bench::scaling
