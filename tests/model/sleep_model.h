// A model of how the workers of a fiber run sleep and are woken (docs/guide/fibers.md, src/fiber/runtime.h), at the
// granularity of single atomic operations. What the queues hold and in which order is of no account here, so a queue is
// a set of fibers. Locks are not modelled: what is done under one is a step.
//
// Fibers run scripts, one letter an operation; the first fiber begins, and who has no letters left ends:
//   s spawn the next fiber   y yield   e wait for a descriptor, on which the world acts one day
// No script can dead-lock, so every deadlock that is told is a false one.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace farside::model {

// Rules that a run leaves out, to prove that the model finds out.
enum class BrokenSleep {
  kNothing,
  kWakerCounts,     // who wakes a sleeper counts it as awake, in the sleeper's place
  kNoLook,          // a worker sleeps without a look at the queues after it said so
  kHandlesAsleep,   // a watcher makes fibers ready before it counts as awake
  kNoSecondLook,    // a deadlock is told although somebody got up meanwhile
  kNoWakeAtTheEnd,  // the last fiber ends, and nobody tells those who sleep
};

struct SleepScenario {
  unsigned workers = 0;
  std::vector<std::string> fibers;  // up to SleepModel::kFibers
  BrokenSleep broken = BrokenSleep::kNothing;
};

class SleepModel {
 public:
  static constexpr unsigned kWorkers = 3, kFibers = 3;
  // Each worker, each worker where it looks for events of its own will, and the world.
  static constexpr unsigned kWorld = 2 * kWorkers, kActors = kWorld + 1;
  static constexpr uint8_t kNone = 255;

  enum class Sleep : uint8_t { kAwake, kOnBell, kOnSockets };
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
    kWakeOnBell,
    kWakeAny,
    kWakeCount,
    kWakeRing,
    kIdle,
    kSpin,
    kEndSearch,
    kSleep,
    kSay,
    kAnnounce,
    kLook,
    kLookForDone,
    kDeadlockQueues,
    kDeadlockEvents,
    kDeadlockWord,
    kBlock,
    kUp,
    kUpCount,
    kHandle,
    kHandled,
    kEndWatch,
    kWatchedNoMore,
    kDone
  };
  struct Worker {
    Pc pc = Pc::kNext;
    Pc back = Pc::kNext;   // where a wake-up goes on
    uint8_t at = 0;        // of a scan over the workers
    uint8_t wake_all = 0;  // the scan is the last fiber's
    uint8_t found = 0, searched = 0;
    uint8_t fiber = kNone;
    uint8_t events = 0;  // a mask of fibers, taken from the kernel and not yet handled
    uint8_t watches = 0, announced = 0, all_asleep = 0;
    uint8_t others_moved = 0;  // the sleep word has changed since the worker announced its sleep
    Sleep woken = Sleep::kAwake;
    Sleep sleep = Sleep::kAwake;
    uint8_t bell = 0;   // rung since the worker last read it
    uint8_t queue = 0;  // a mask of fibers
  };
  struct State {
    Worker workers[kWorkers];
    uint8_t ops[kFibers] = {};  // how far each fiber is
    uint8_t spawned = 1, live = 1, done = 0;
    uint8_t searching = 0, watched = 0, ring = 0;
    int8_t sleeping = 0;
    uint8_t waiters = 0;
    uint8_t waiting = 0, acted = 0;  // masks: who waits for a descriptor, and those the kernel has something for
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit SleepModel(const SleepScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // One step of an actor. False: it cannot do any now.
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  bool is_broken(BrokenSleep rule) const { return scenario_.broken == rule; }
  bool step_world(State& s) const;
  bool looks_for_events(State& s, Worker& w) const;
  bool step_fibers(State& s, unsigned i) const;
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
