#include "sleep_model.h"

namespace farside::model {
namespace {

uint8_t bit(unsigned i) { return static_cast<uint8_t>(1u << i); }

uint8_t take_lowest(uint8_t* mask) {
  auto i = static_cast<uint8_t>(__builtin_ctz(*mask));
  *mask = static_cast<uint8_t>(*mask & ~bit(i));
  return i;
}

}  // namespace

SleepModel::State SleepModel::start() const {
  State s;
  s.workers[0].queue = bit(0);
  return s;
}

bool SleepModel::any_ready(const State& s) {
  uint8_t all = 0;
  for (const Worker& w : s.workers) all |= w.queue;
  return all != 0;
}

// Updates the two fields of the sleep word: the number, and the change, which a later check tests.
void SleepModel::count(State& s, unsigned mover, int change) const {
  s.sleeping = static_cast<int8_t>(s.sleeping + change);
  for (unsigned i = 0; i < kWorkers; i++) {
    Worker& w = s.workers[i];
    if (i != mover && w.all_asleep) w.others_moved = 1;
  }
}

bool SleepModel::step(State& s, unsigned actor, const char** wrong) const {
  if (actor == kEnvironment) return step_environment(s);
  unsigned i = actor % kWorkers;
  if (i >= scenario_.workers) return false;
  if (actor >= kWorkers) return looks_for_events(s, s.workers[i]);
  switch (s.workers[i].pc) {
    case Pc::kDone:
      return false;
    case Pc::kWakeOne:
    case Pc::kWakeSearching:
    case Pc::kWakeOnWakeup:
    case Pc::kWakeAny:
    case Pc::kWakeCount:
    case Pc::kWakeSignal:
      return step_wake(s, i);
    case Pc::kWakeUp:
    case Pc::kAwakeCount:
    case Pc::kHandle:
    case Pc::kHandled:
    case Pc::kEndWatch:
    case Pc::kWatchEnded:
      return step_awake(s, i);
    case Pc::kSleep:
    case Pc::kSetSleep:
    case Pc::kAnnounce:
    case Pc::kTestQueues:
    case Pc::kTestDone:
    case Pc::kDeadlockQueues:
    case Pc::kDeadlockEvents:
    case Pc::kDeadlockWord:
    case Pc::kBlock:
      return step_sleep(s, i, wrong);
    default:
      return step_fibers(s, i);
  }
}

bool SleepModel::step_environment(State& s) const {
  auto quiet = static_cast<uint8_t>(s.waiting & ~s.acted);
  if (quiet == 0) return false;
  s.acted |= bit(take_lowest(&quiet));
  return true;
}

// Runtime::look_for_events, which a busy worker calls now and then.
bool SleepModel::looks_for_events(State& s, Worker& w) const {
  if (w.pc != Pc::kNext || s.done || s.waiters == 0 || s.watched) return false;
  s.watched = 1;
  w.watches = 1;
  w.events = s.acted;
  s.acted = 0;
  w.pc = Pc::kHandle;
  return true;
}

// Worker::work, next and steal.
bool SleepModel::step_fibers(State& s, unsigned i) const {
  Worker& w = s.workers[i];
  switch (w.pc) {
    case Pc::kNext:
      if (s.done) {
        w.pc = Pc::kDone;
        return true;
      }
      if (w.queue == 0) {
        w.at = 1;
        w.pc = Pc::kSteal;
        return true;
      }
      w.fiber = take_lowest(&w.queue);
      w.pc = Pc::kSearched;
      return true;
    case Pc::kSteal: {
      if (w.at >= scenario_.workers) {
        w.at = 0;
        w.pc = Pc::kIdle;
        return true;
      }
      Worker& other = s.workers[(i + w.at) % scenario_.workers];
      w.at++;
      if (other.queue == 0) return true;
      w.at = 0;
      // Takes half of the queue, rounded up: of three fibers the second is pushed here, and another worker is woken.
      w.fiber = take_lowest(&other.queue);
      if (__builtin_popcount(other.queue) == 2) w.queue = bit(take_lowest(&other.queue));
      if (w.queue) wake_one(w, Pc::kSearched);
      else w.pc = Pc::kSearched;
      return true;
    }
    case Pc::kSearched: {
      bool more = w.searched && (any_ready(s) || (s.waiters > 0 && !s.watched));
      w.searched = 0;
      if (more) wake_one(w, Pc::kRun);
      else w.pc = Pc::kRun;
      return true;
    }
    case Pc::kRun:
      run(s, w);
      return true;
    case Pc::kAdd:  // Sockets::add
      s.waiting |= bit(w.fiber);
      w.fiber = kNone;
      w.pc = Pc::kEventAdded;
      return true;
    case Pc::kEventAdded:
      w.pc = s.sleeping == 0 ? Pc::kNext : Pc::kEventWatched;
      return true;
    case Pc::kEventWatched:
      if (s.watched) w.pc = Pc::kNext;
      else wake_one(w, Pc::kNext);
      return true;
    default:
      return step_idle(s, w);
  }
}

// Worker::idle and spin.
bool SleepModel::step_idle(State& s, Worker& w) const {
  switch (w.pc) {
    case Pc::kIdle:
      w.pc = s.searching ? Pc::kSleep : Pc::kSpin;
      s.searching = 1;
      return true;
    case Pc::kSpin:
      w.found = any_ready(s) || s.done;
      w.searched = 1;
      w.pc = Pc::kEndSearch;
      return true;
    case Pc::kEndSearch:
      s.searching = 0;
      w.pc = w.found ? Pc::kNext : Pc::kSleep;
      w.found = 0;
      return true;
    default:
      return false;
  }
}

void SleepModel::run(State& s, Worker& w) const {
  const std::string& script = scenario_.fibers[w.fiber];
  if (s.ops[w.fiber] == script.size()) {
    w.fiber = kNone;
    w.pc = Pc::kNext;
    if (--s.live > 0) return;
    s.done = 1;
    if (is_broken(BrokenSleep::kNoWakeAtTheEnd)) return;
    w.wake_all = 1;
    w.back = Pc::kNext;
    w.pc = Pc::kWakeAny;
    return;
  }
  switch (script[s.ops[w.fiber]++]) {
    case 's':
      w.queue |= bit(s.spawned++);
      s.live++;
      wake_one(w, Pc::kRun);
      return;
    case 'y':
      w.queue |= bit(w.fiber);
      w.fiber = kNone;
      if (__builtin_popcount(w.queue) > 1) wake_one(w, Pc::kNext);
      else w.pc = Pc::kNext;
      return;
    default:
      s.waiters++;
      w.pc = Pc::kAdd;
  }
}

// ---- Runtime::wake_one and end, Sleeper::wake ----

void SleepModel::wake_one(Worker& w, Pc back) const {
  w.back = back;
  w.pc = Pc::kWakeOne;
}

bool SleepModel::step_wake(State& s, unsigned i) const {
  Worker& w = s.workers[i];
  auto return_back = [&] {
    w.at = w.wake_all = 0;
    w.woken = Sleep::kAwake;
    w.pc = w.back;
    w.back = Pc::kNext;
  };
  switch (w.pc) {
    case Pc::kWakeOne:
      if (s.sleeping == 0) return_back();
      else w.pc = Pc::kWakeSearching;
      return true;
    case Pc::kWakeSearching:
      if (s.searching) return_back();
      else w.pc = Pc::kWakeOnWakeup;
      return true;
    case Pc::kWakeOnWakeup:
    case Pc::kWakeAny: {
      bool on_wakeup = w.pc == Pc::kWakeOnWakeup;
      if (w.at >= scenario_.workers) {
        w.at = 0;
        if (on_wakeup) w.pc = Pc::kWakeAny;
        else return_back();
        return true;
      }
      Worker& other = s.workers[w.at];
      if (other.sleep == Sleep::kAwake || (on_wakeup && other.sleep != Sleep::kOnWakeup)) {
        w.at++;
        return true;
      }
      w.woken = other.sleep;
      other.sleep = Sleep::kAwake;
      w.pc = is_broken(BrokenSleep::kWakerCounts) ? Pc::kWakeCount : Pc::kWakeSignal;
      return true;
    }
    case Pc::kWakeCount:
      count(s, i, -1);
      w.pc = Pc::kWakeSignal;
      return true;
    case Pc::kWakeSignal:
      if (w.woken == Sleep::kOnWakeup) s.workers[w.at].wakeup = 1;
      else s.ring = 1;
      w.woken = Sleep::kAwake;
      w.at++;
      if (w.wake_all) w.pc = Pc::kWakeAny;
      else return_back();
      return true;
    default:
      return false;
  }
}

// ---- Worker::sleep, Runtime::check_deadlock ----

bool SleepModel::step_sleep(State& s, unsigned i, const char** wrong) const {
  Worker& w = s.workers[i];
  switch (w.pc) {
    case Pc::kSleep:
      w.wakeup = 0;
      w.watches = !s.watched;
      s.watched = 1;
      w.pc = Pc::kSetSleep;
      return true;
    case Pc::kSetSleep:
      w.sleep = w.watches ? Sleep::kOnSockets : Sleep::kOnWakeup;
      w.pc = Pc::kAnnounce;
      return true;
    case Pc::kAnnounce:
      count(s, i, 1);
      w.announced = 1;
      w.all_asleep = s.sleeping == static_cast<int>(scenario_.workers);
      w.pc = is_broken(BrokenSleep::kNoTest) ? Pc::kBlock : Pc::kTestQueues;
      return true;
    case Pc::kTestQueues:
    case Pc::kDeadlockQueues: {
      bool deadlock = w.pc == Pc::kDeadlockQueues;
      if (w.at >= scenario_.workers) {
        w.at = 0;
        w.pc = deadlock ? Pc::kDeadlockEvents : Pc::kTestDone;
      } else if (s.workers[w.at].queue != 0) {  // one queue per step
        w.at = 0;
        w.pc = deadlock ? Pc::kBlock : Pc::kWakeUp;
      } else {
        w.at++;
      }
      return true;
    }
    case Pc::kTestDone:
      w.pc = s.done ? Pc::kWakeUp : (w.all_asleep ? Pc::kDeadlockQueues : Pc::kBlock);
      return true;
    case Pc::kDeadlockEvents:
      w.pc = s.waiters > 0 ? Pc::kBlock : Pc::kDeadlockWord;
      return true;
    case Pc::kDeadlockWord:
      if (!s.done && (!w.others_moved || is_broken(BrokenSleep::kNoSecondTest)))
        *wrong = "a false deadlock is reported";
      w.pc = Pc::kBlock;
      return true;
    case Pc::kBlock: {
      bool stays = w.watches ? !s.ring && s.acted == 0 : w.wakeup == 0;
      if (stays) return false;
      if (w.watches) {
        w.events = s.acted;
        s.ring = s.acted = 0;
      }
      w.pc = is_broken(BrokenSleep::kHandlesAsleep) && w.events ? Pc::kHandle : Pc::kWakeUp;
      return true;
    }
    default:
      return false;
  }
}

// The ends of Worker::sleep and of Runtime::look_for_events.
bool SleepModel::step_awake(State& s, unsigned i) const {
  Worker& w = s.workers[i];
  switch (w.pc) {
    case Pc::kWakeUp: {
      bool counts = w.sleep != Sleep::kAwake || !is_broken(BrokenSleep::kWakerCounts);
      w.sleep = Sleep::kAwake;
      w.announced = w.all_asleep = w.others_moved = 0;
      w.pc = counts ? Pc::kAwakeCount : (w.watches ? Pc::kHandle : Pc::kNext);
      return true;
    }
    case Pc::kAwakeCount:
      count(s, i, -1);
      w.pc = w.watches ? Pc::kHandle : Pc::kNext;
      return true;
    case Pc::kHandle:
      if (w.events == 0) {
        w.pc = w.announced ? Pc::kWakeUp : Pc::kEndWatch;
        return true;
      }
      handle(s, w, take_lowest(&w.events));
      return true;
    case Pc::kHandled:
      s.waiters--;
      w.pc = Pc::kHandle;
      return true;
    case Pc::kEndWatch:
      s.watched = w.watches = 0;
      w.pc = Pc::kWatchEnded;
      return true;
    case Pc::kWatchEnded:
      if (s.waiters > 0) wake_one(w, Pc::kNext);
      else w.pc = Pc::kNext;
      return true;
    default:
      return false;
  }
}

// Sockets::dispatch: an event may be an old one, for which no fiber waits any more.
void SleepModel::handle(State& s, Worker& w, uint8_t fiber) const {
  if (!(s.waiting & bit(fiber))) return;
  s.waiting = static_cast<uint8_t>(s.waiting & ~bit(fiber));
  w.queue |= bit(fiber);
  wake_one(w, Pc::kHandled);
}

const char* SleepModel::check(const State& s) const {
  uint8_t seen = s.waiting;
  for (const Worker& w : s.workers) {
    uint8_t here = w.fiber == kNone ? w.queue : static_cast<uint8_t>(w.queue | bit(w.fiber));
    if (seen & here) return "a fiber is in two places";
    seen |= here;
  }
  return nullptr;
}

bool SleepModel::done(const State& s) const {
  for (unsigned i = 0; i < scenario_.workers; i++) {
    if (s.workers[i].pc != Pc::kDone) return false;
  }
  return true;
}

const char* SleepModel::check_done(const State& s) const {
  return s.live == 0 && !any_ready(s) && s.waiters == 0 ? nullptr : "the run ends before its fibers";
}

std::string SleepModel::describe(const State& s, unsigned actor) const {
  if (actor == kEnvironment) return "an event occurs on a descriptor";
  const Worker& w = s.workers[actor % kWorkers];
  std::string text = "worker " + std::to_string(actor % kWorkers) + " -> " + std::to_string(static_cast<int>(w.pc)) +
                     ", fiber " + std::to_string(w.fiber) + ", sleeping " + std::to_string(s.sleeping) + ", queues";
  for (const Worker& other : s.workers) text += " " + std::to_string(other.queue);
  return text + ", waiting " + std::to_string(s.waiting) + ", acted " + std::to_string(s.acted);
}

}  // namespace farside::model
