// The cores of the simulated machine. A worker keeps its core until it sleeps, or until its slice has ended and others
// wait for one; of those that wait, who had the least time goes next. Without others nothing is lost.
#pragma once
#include <algorithm>
#include <vector>

#include "bench/scaling/events.h"

namespace farside::bench::scaling {

// A thread.
struct Worker {
  unsigned core = 0;
  bool running = false;
  Time used = 0;       // of cores, by which its turn is found
  Time slice_end = 0;  // when others may have its core
  Time stolen = 0;     // by interrupts, and not yet made up for
};

class Cores {
 public:
  Cores(Simulation& simulation, unsigned count, Time slice)
      : simulation_(simulation), slice_(slice), holders_(count, nullptr) {}

  // co_await cores.enter(worker): goes on with a core.
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
  static constexpr Time kSwitch = 1.5;  // from one thread to another
  struct Waiting {
    Worker* worker;
    std::coroutine_handle<> handle;
  };

  // The core that it had before, if it is free, else any.
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

  // Who comes back from a sleep takes the core of the one that had the most time, if that is clearly more.
  void wait(Worker& worker, std::coroutine_handle<> h) {
    Worker* most = *std::max_element(holders_.begin(), holders_.end(),
                                     [](const Worker* a, const Worker* b) { return a->used < b->used; });
    worker.used = std::max(worker.used, most->used - slice_);
    if (most->used - worker.used >= slice_ / 2) most->slice_end = simulation_.now();
    waiting_.push_back({&worker, h});
  }

  Simulation& simulation_;
  Time slice_;
  std::vector<Worker*> holders_;
  std::vector<Waiting> waiting_;
};

}  // namespace farside::bench::scaling
