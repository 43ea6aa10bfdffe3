// A model of frames that system calls pin (src/pager/pages/frames.h, EvictorGroup::relieve_waiting), at the granularity
// of single atomic operations. Each thread makes calls that pin several pages, one after the other, and holds them
// while it waits for a frame for the next. The first thread's call ends only when all others have made theirs, like a
// read from a pipe that they write. Metadata, as buffers of reads in flight, takes frames off the limit at any time.
//
// An unpinned page is near, and can be evicted. Which page it is does not matter here, so pages are counted.
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>

namespace farside::model {

// Rules that a run omits, to prove that the model detects the omission.
enum class BrokenPins {
  kNothing,
  kNoRelief,          // the limit is never exceeded: threads with a part of their pins wait for each other
  kReliefOfTheLimit,  // the limit is raised without regard to metadata, which hides the raise
  kReliefOnce,        // only the first wait is relieved
  kNeverLowered,      // released frames do not lower the limit again
};

struct PinScenario {
  unsigned threads = 0, pins = 0;  // of each call
  unsigned calls = 1;              // of each thread
  unsigned frames = 0;             // the limit
  unsigned metadata = 0;           // frames that it may take
  BrokenPins broken = BrokenPins::kNothing;
};

class PinModel {
 public:
  static constexpr unsigned kThreads = 3;
  // The threads, the evictor, and metadata that grows.
  static constexpr unsigned kEvictor = kThreads, kMetadata = kThreads + 1, kActors = kThreads + 2;

  enum class Pc : uint8_t { kTake, kRefused, kAnnounce, kWait, kTaken, kInCall, kUnpin, kDone };
  struct Thread {
    Pc pc = Pc::kTake;
    uint8_t pinned = 0, calls = 0;
    uint8_t waits = 0;
  };
  enum class EvictorPc : uint8_t { kLook, kRaise, kGive };
  struct State {
    Thread threads[kThreads];
    uint8_t used = 0, limit = 0, reserved = 0, waiting = 0;
    uint8_t evictable = 0;
    EvictorPc evictor = EvictorPc::kLook;
    uint8_t rounds = 0, wanted = 0, relieved = 0;
  };
  static_assert(std::has_unique_object_representations_v<State>);

  explicit PinModel(const PinScenario& scenario) : scenario_(scenario) {}
  State start() const;
  // Makes one step of an actor. False: it is blocked or has ended.
  bool step(State& s, unsigned actor, const char** wrong) const;
  const char* check(const State& s) const;
  bool done(const State& s) const;
  const char* check_done(const State& s) const;
  std::string describe(const State& s, unsigned actor) const;

 private:
  static constexpr unsigned kRounds = 2;  // fruitless ones before a relief
  static constexpr unsigned kMin = 1;     // usable frames, however large the metadata

  bool is_broken(BrokenPins rule) const { return scenario_.broken == rule; }
  bool step_thread(State& s, unsigned i) const;
  bool step_evictor(State& s) const;
  unsigned usable(const State& s) const;
  bool others_are_done(const State& s) const;

  PinScenario scenario_;
};

}  // namespace farside::model
