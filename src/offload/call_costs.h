// What calls cost in the program and on a server, and where the next one should be executed. Learned for each function
// and size class of its ranges, from calls of the mode AUTOMATIC in this process:
//
//   in the program   bytes x (computation + far share x fetch)
//   on a server      call + bytes x computation + dirty bytes x write-back
//
// Each measurement changes one term, which is the mean of all at first, and later of about the last eight; it at most
// doubles an expected time, since single calls are interrupted. What was not measured yet is assumed to compute 2 GB/s,
// or as fast as the other way if that is faster, and to fetch and write back 1 GB/s. The way that seems to be worse is
// tried now and then, by a few calls: where both are close, as often as costs 2 % of the time; and at growing intervals
// where the function takes little more than a call, since it touches few bytes then, and the assumption errs most.
// Thread-safe.
#pragma once
#include <cstdint>

#include "base/sync.h"

namespace farside::offload {

// A call that may be executed in both ways.
struct Expected {
  uint64_t function = 0;  // identifies it
  double bytes = 0, far = 0, dirty = 0;
  uint64_t stopped = 0;  // data structures whose moves the caller itself has stopped
};

class CallCosts {
 public:
  bool prefers_server(const Expected& call);
  void ran_locally(const Expected& call, uint64_t ns);
  void ran_on_server(const Expected& call, uint64_t ns);
  // The server refused it, or the function failed there.
  void failed_on_server(const Expected& call);

 private:
  struct Term {
    double value = 0;
    uint32_t count = 0;  // measurements
    bool is_known() const { return count > 0; }
    double value_or(double assumed) const { return is_known() ? value : assumed; }
    void learn(double measured);
  };
  struct Estimate {
    uint64_t key = 0;
    Term local_byte_ns, fetch_byte_ns, server_byte_ns;
    uint32_t calls = 0, next_trial = 2;  // since the last trial, and until the next one
    uint32_t trial_calls = 0;            // that the current trial will make
    bool tries_server = false;           // in the current trial
  };
  static uint64_t key_of(const Expected& call);
  // Whether anything is known about calls in the program.
  static bool is_local_known(const Estimate& e) { return e.local_byte_ns.is_known() || e.fetch_byte_ns.is_known(); }
  static double near_byte_ns(const Estimate& estimate);
  static bool is_cold(const Estimate& estimate, bool on_server);
  double local_ns(const Estimate& estimate, const Expected& call) const REQUIRES(lock_);
  double server_ns(const Estimate& estimate, const Expected& call) const REQUIRES(lock_);
  Estimate& estimate_of(const Expected& call) REQUIRES(lock_);
  bool is_time_for_trial(Estimate& estimate, const Expected& call, double loss) const REQUIRES(lock_);

  static constexpr unsigned kEstimates = 256;
  Mutex lock_;
  double call_ns_ GUARDED_BY(lock_) = 30'000, write_byte_ns_ GUARDED_BY(lock_) = 1;
  Estimate estimates_[kEstimates] GUARDED_BY(lock_);
};

}  // namespace farside::offload
