// How a thread waits for a reply. Waking a sleeping thread costs as much as several polled round trips where a core is
// idle, and little where none is; polling takes a core that other threads may need. So a thread polls for as long as a
// wake-up takes, and sleeps at once where
//   - more threads of the process wait than half of the cores: their replies need cores, too;
//   - replies took longer than a wake-up lately;
//   - a polling thread was preempted lately, so another thread wanted its core.
// Everything here is async-signal-safe.
#pragma once
#include <cstdint>

#include "base/clock.h"

namespace farside::transport {

inline constexpr uint64_t kWakeUpNs = 60'000;  // about what it takes to wake a thread where cores are idle

// How long the replies of a channel took lately, from the beginning of the wait. Of one thread at a time.
class ReplyTimes {
 public:
  // One fast reply suffices: what was measured asleep includes a wake-up.
  void add(uint64_t ns) { usual_ns_ = are_slow() && ns < kWakeUpNs ? ns : usual_ns_ - usual_ns_ / 8 + ns / 8; }
  bool are_slow() const { return usual_ns_ >= kWakeUpNs; }
  // Whether the next wait may poll: slow replies are tried again now and then.
  bool allow_polling() { return !are_slow() || ++waits_ % kRetry == 0; }

 private:
  static constexpr unsigned kRetry = 32;
  uint64_t usual_ns_ = 0;
  unsigned waits_ = 0;
};

// One wait of one thread.
class Waiting {
 public:
  explicit Waiting(ReplyTimes& times);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Whether to poll next; else to sleep. now_ns: the time now.
  bool polls(uint64_t now_ns);
  // The reply has come.
  void complete(uint64_t now_ns);

  // In a forked child, before its first wait: the other threads are the parent's. Forgets preemptions.
  static void reset_in_child();

 private:
  void note_gap(uint64_t now_ns);

  ReplyTimes& times_;
  const uint64_t begin_ns_;
  uint64_t seen_ns_;
  const bool may_poll_;
  bool polls_ = false;  // since seen_ns_
  long switches_ = -1;  // involuntary ones of this thread when the wait began; -1: not counted
};

// The wait of a channel, for at most timeout_ns: until is_complete(), with pump() to receive and send without waiting,
// and sleep(ns), which waits for something to receive for at most ns and then does the same. False: the time has
// passed.
template <typename IsComplete, typename Pump, typename Sleep>
bool wait_until(ReplyTimes& times, uint64_t timeout_ns, IsComplete is_complete, Pump pump, Sleep sleep) {
  Waiting waiting(times);
  uint64_t start = now_ns(), passed = 0;
  while (!is_complete()) {
    bool last = passed >= timeout_ns;
    if (last || waiting.polls(start + passed)) pump();
    else sleep(timeout_ns - passed);
    if (last && !is_complete()) return false;
    passed = now_ns() - start;
  }
  waiting.complete(start + passed);
  return true;
}

}  // namespace farside::transport
