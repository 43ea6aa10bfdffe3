#include "pin_model.h"

#include <algorithm>

namespace farside::model {

PinModel::State PinModel::start() const {
  State s;
  s.limit = static_cast<uint8_t>(scenario_.frames);
  for (unsigned i = scenario_.threads; i < kThreads; i++) s.threads[i].pc = Pc::kDone;
  return s;
}

unsigned PinModel::usable(const State& s) const { return s.reserved + kMin < s.limit ? s.limit - s.reserved : kMin; }

bool PinModel::others_are_done(const State& s) const {
  return std::all_of(s.threads + 1, s.threads + kThreads, [](const Thread& t) { return t.pc == Pc::kDone; });
}

bool PinModel::step(State& s, unsigned actor, const char**) const {
  if (actor == kEvictor) return step_evictor(s);
  if (actor < kThreads) return step_thread(s, actor);
  if (s.reserved == scenario_.metadata) return false;
  s.reserved++;
  return true;
}

// RangeOps::pin, FetchPath::take_frame, RangeOps::unpin.
bool PinModel::step_thread(State& s, unsigned i) const {
  Thread& t = s.threads[i];
  switch (t.pc) {
    case Pc::kTake:  // Frames::try_take
      s.used++;
      t.pc = s.used > usable(s) ? Pc::kRefused : Pc::kTaken;
      return true;
    case Pc::kRefused:
      s.used--;
      t.pc = t.waits ? Pc::kWait : Pc::kAnnounce;
      return true;
    case Pc::kAnnounce:
      s.waiting++;
      t.waits = 1;
      t.pc = Pc::kWait;
      return true;
    case Pc::kWait:  // it looks again now and then; a state that does not change needs no step
      if (s.used >= usable(s)) return false;
      t.pc = Pc::kTake;
      return true;
    case Pc::kTaken:
      if (t.waits) s.waiting--;
      t.waits = 0;
      t.pinned++;
      t.pc = t.pinned < scenario_.pins ? Pc::kTake : Pc::kInCall;
      return true;
    case Pc::kInCall:
      if (i == 0 && !others_are_done(s)) return false;
      t.pc = Pc::kUnpin;
      return true;
    case Pc::kUnpin:
      t.pinned--;
      s.evictable++;
      if (t.pinned > 0) return true;
      t.calls++;
      t.pc = t.calls < scenario_.calls ? Pc::kTake : Pc::kDone;
      return true;
    default:
      return false;
  }
}

// Evictor::step, EvictorGroup::relieve_waiting, Frames::exceed and give.
bool PinModel::step_evictor(State& s) const {
  switch (s.evictor) {
    case EvictorPc::kLook: {
      bool low = s.limit > scenario_.frames || s.used >= usable(s);
      if (low && s.evictable > 0) {
        s.evictable--;
        s.rounds = 0;
        s.evictor = EvictorPc::kGive;
        return true;
      }
      if (s.waiting == 0 || is_broken(BrokenPins::kNoRelief)) return false;
      if (is_broken(BrokenPins::kReliefOnce) && s.relieved) return false;
      if (s.rounds < kRounds) {
        s.rounds++;
        return true;
      }
      unsigned base = is_broken(BrokenPins::kReliefOfTheLimit) ? scenario_.frames : s.used + s.reserved;
      if (s.limit >= base + s.waiting) return false;
      s.wanted = static_cast<uint8_t>(base + s.waiting);
      s.evictor = EvictorPc::kRaise;
      return true;
    }
    case EvictorPc::kRaise:
      s.limit = std::max(s.limit, s.wanted);
      s.wanted = 0;
      s.relieved = is_broken(BrokenPins::kReliefOnce);
      s.evictor = EvictorPc::kLook;
      return true;
    case EvictorPc::kGive:
      s.used--;
      if (s.limit > scenario_.frames && !is_broken(BrokenPins::kNeverLowered)) s.limit--;
      s.evictor = EvictorPc::kLook;
      return true;
  }
  return false;
}

const char* PinModel::check(const State& s) const {
  unsigned pinned = 0, in_steps = 0;
  for (const Thread& t : s.threads) {
    pinned += t.pinned;
    in_steps += t.pc == Pc::kRefused || t.pc == Pc::kTaken;
  }
  if (s.used != pinned + in_steps + s.evictable + (s.evictor == EvictorPc::kGive)) return "a frame was lost or made";
  if (pinned + s.evictable > scenario_.frames + scenario_.threads * scenario_.pins)
    return "more is near than the limit and all pins";
  return nullptr;
}

// The evictor has nothing to do.
bool PinModel::done(const State& s) const {
  return s.threads[0].pc == Pc::kDone && others_are_done(s) && s.evictor == EvictorPc::kLook &&
         (s.evictable == 0 || (s.limit <= scenario_.frames && s.used < usable(s)));
}

const char* PinModel::check_done(const State& s) const {
  if (s.waiting != 0) return "a thread is counted as waiting for ever";
  if (s.used > scenario_.frames) return "the limit is exceeded for ever";
  if (s.evictable == 0 && s.limit > scenario_.frames + s.reserved) return "the limit stays raised";
  return nullptr;
}

std::string PinModel::describe(const State& s, unsigned actor) const {
  std::string who = actor == kEvictor ? "evictor" : actor == kMetadata ? "metadata" : "thread " + std::to_string(actor);
  who += ": used " + std::to_string(s.used) + " of " + std::to_string(usable(s)) + ", evictable " +
         std::to_string(s.evictable) + ", waiting " + std::to_string(s.waiting) + ", pinned";
  for (const Thread& t : s.threads) who += " " + std::to_string(t.pinned);
  return who;
}

}  // namespace farside::model
