// A model of how the workers of a fiber runtime sleep and are woken (docs/internals/fibers.md, src/fiber/runtime.h), at
// the granularity of single atomic operations. The order of fibers in a queue does not matter here, so a queue is a
// set. Locks are not modelled: an operation under a lock is one step.
//
// Fibers run scripts of one letter per operation. The first fiber starts the run; a fiber whose script is done ends.
//   s spawn the next fiber   y yield   e wait for a descriptor, on which the environment will act
// No script can deadlock, so every deadlock that is reported is a false one.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenSleep {
  kNothing,
  kWakerCounts,     // the waker counts the sleeper as awake, in place of the sleeper
  kNoTest,          // a worker sleeps without testing the queues after its announcement
  kHandlesAsleep,   // a watcher makes fibers ready before it counts itself as awake
  kNoSecondTest,    // a deadlock is reported although a worker woke during the check
  kNoWakeAtTheEnd,  // the last fiber ends, and the sleepers are not woken
};

struct SleepScenario {
  unsigned workers = 0;
  std::vector<std::string> fibers;  // up to SleepModel::kFibers
  BrokenSleep broken = BrokenSleep::kNothing;
};

class SleepModel {
 public:
  static constexpr unsigned kWorkers = 3, kFibers = 3;
  // Each worker, each worker again for Runtime::look_for_events at any time, and the environment.
  static constexpr unsigned kEnvironment = 2 * kWorkers, kActors = kEnvironment + 1;
  static constexpr uint8_t kNone = 255;

  enum class Sleep : uint8_t { kAwake, kOnWakeup, kOnSockets };
  enum class Pc : uint8_t {
    kNext,
    kSteal,
    kSearched,
    kRun,
    kAdd,
    kEventAdded,
    kEventWatched,
    kWakeOne,
    kWakeSearching,
    kWakeOnWakeup,
    kWakeAny,
    kWakeCount,
    kWakeSignal,
    kIdle,
    kSpin,
    kEndSearch,
    kSleep,
    kSetSleep,
    kAnnounce,
    kTestQueues,
    kTestDone,
    kDeadlockQueues,
    kDeadlockEvents,
    kDeadlockWord,
    kBlock,
    kWakeUp,
    kAwakeCount,
    kHandle,
    kHandled,
    kEndWatch,
    kWatchEnded,
    kDone
  };
  struct Worker {
    Pc pc = Pc::kNext;
    Pc back = Pc::kNext;   // where to continue after a wake-up
    uint8_t at = 0;        // position of a scan over the workers
    uint8_t wake_all = 0;  // the scan is that of wake_all()
    uint8_t found = 0, searched = 0;
    uint8_t fiber = kNone;
    uint8_t events = 0;  // mask of fibers: events taken from the kernel and not yet handled
    uint8_t watches = 0, announced = 0, all_asleep = 0;
    uint8_t others_moved = 0;  // the sleep word has changed since the worker announced its sleep
    Sleep woken = Sleep::kAwake;
    Sleep sleep = Sleep::kAwake;
    uint8_t wakeup = 0;  // signalled since the worker last read it
    uint8_t queue = 0;   // mask of fibers
  };
  struct State {
    Worker workers[kWorkers];
    uint8_t ops[kFibers] = {};  // position of each fiber in its script
    uint8_t spawned = 1, live = 1, done = 0;
    uint8_t searching = 0, watched = 0, ring = 0;
    int8_t sleeping = 0;
    uint8_t waiters = 0;
    uint8_t waiting = 0, acted = 0;  // masks of fibers: waiting for a descriptor; with an event in the kernel
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit SleepModel(const SleepScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // Makes one step of an actor. False: it is blocked or has ended.
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenSleep rule) const { return scenario_.broken == rule; }
  bool step_environment(State& s) const;
  bool looks_for_events(State& s, Worker& w) const;
  bool step_fibers(State& s, unsigned i) const;
  bool step_idle(State& s, Worker& w) const;
  void run(State& s, Worker& w) const;
  bool step_wake(State& s, unsigned i) const;
  bool step_sleep(State& s, unsigned i, const char** wrong) const;
  bool step_awake(State& s, unsigned i) const;
  void handle(State& s, Worker& w, uint8_t fiber) const;
  void wake_one(Worker& w, Pc back) const;
  void count(State& s, unsigned mover, int change) const;
  static bool any_ready(const State& s);

  SleepScenario scenario_;
};

}  // namespace farside::model
