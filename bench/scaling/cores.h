// The scheduler of the simulated machine. A worker keeps its core until it sleeps, or until its time slice has ended
// and others wait for a core. Of the waiting workers the one with the least CPU time is next.
#pragma once
#include <algorithm>
#include <vector>

#include "bench/scaling/events.h"

namespace farside::bench::scaling {

// A simulated thread.
struct Worker {
  unsigned core = 0;
  bool running = false;
  Time used = 0;       // CPU time so far, by which waiting workers are ordered
  Time slice_end = 0;  // after it the core goes to a waiting worker
  Time stolen = 0;     // taken by interrupts and not yet added to its work
};

class Cores {
 public:
  Cores(Simulation& simulation, unsigned count, Time slice)
      : simulation_(simulation), slice_(slice), holders_(count, nullptr) {}

  // co_await cores.enter(worker): continues when the worker has a core.
  struct Enter {
    Cores& cores;
    Worker& worker;
    bool await_ready() const { return cores.try_enter(worker); }
    void await_suspend(std::coroutine_handle<> h) { cores.wait(worker, h); }
    void await_resume() {}
  };
  Enter enter(Worker& worker) { return {*this, worker}; }

  void leave(Worker& worker) {
    holders_[worker.core] = nullptr;
    worker.running = false;
    if (waiting_.empty()) return;
    auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                 [](const Waiting& a, const Waiting& b) { return a.worker->used < b.worker->used; });
    Waiting chosen = *next;
    waiting_.erase(next);
    give(*chosen.worker, worker.core);
    simulation_.at(simulation_.now() + kSwitch, chosen.handle);
  }

  bool should_yield(const Worker& worker) const { return !waiting_.empty() && simulation_.now() >= worker.slice_end; }

 private:
  static constexpr Time kSwitch = 1.5;  // cost of a context switch
  struct Waiting {
    Worker* worker;
    std::coroutine_handle<> handle;
  };

  // The core that it had before, if that is free; otherwise any free one.
  bool try_enter(Worker& worker) {
    if (!holders_[worker.core]) return give(worker, worker.core), true;
    for (unsigned core = 0; core < holders_.size(); core++) {
      if (!holders_[core]) return give(worker, core), true;
    }
    return false;
  }

  void give(Worker& worker, unsigned core) {
    holders_[core] = &worker;
    worker.core = core;
    worker.running = true;
    worker.slice_end = simulation_.now() + slice_;
  }

  // A worker that wakes up preempts the worker with the most CPU time, if the difference is at least half a slice.
  // Sleep gives at most one slice of credit.
  void wait(Worker& worker, std::coroutine_handle<> h) {
    Worker* longest = *std::max_element(holders_.begin(), holders_.end(),
                                        [](const Worker* a, const Worker* b) { return a->used < b->used; });
    worker.used = std::max(worker.used, longest->used - slice_);
    if (longest->used - worker.used >= slice_ / 2) longest->slice_end = simulation_.now();
    waiting_.push_back({&worker, h});
  }

  Simulation& simulation_;
  Time slice_;
  std::vector<Worker*> holders_;
  std::vector<Waiting> waiting_;
};

}  // namespace farside::bench::scaling
