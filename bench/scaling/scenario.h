// What the model simulates and what it gives: a design of the pager, a scenario, the phases of a fault, an outcome.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/scaling/costs.h"

namespace farside::bench::scaling {

// How a thread waits for a page that comes over a link.
enum class Wait {
  kPoll,      // it keeps its core
  kSleep,     // it gives it up, and needs a wake-up
  kAdaptive,  // it polls while at most half as many threads as cores wait (transport/waiting.h)
};

struct Design {
  unsigned evictors = 4;
  unsigned batch = 128;
  unsigned batches = 4;              // per evictor, in progress at once; 1: not pipelined
  unsigned shards = 16;              // of the policy's queues
  unsigned stripes = 1;              // parts of far space, each with its own userfaultfd and mapping
  unsigned frame_cache = 1;          // frames that a thread takes at once and keeps for its next faults
  bool look_before_take = false;     // a waiter adds to the shared counter only after it has read that a frame is free
  bool take_window_at_once = false;  // take the frames of a window by one addition
  bool insert_window_at_once = false;  // insert the pages of a window into the policy's queue under one lock
  unsigned frame_spins = 500;          // attempts to take a frame before a thread sleeps
  unsigned frames_per_wake = 0;        // released frames per woken thread; 0: all are woken
  bool synchronous = false;            // a thread without a frame evicts a batch itself
  Wait wait = Wait::kPoll;
  unsigned frame_pages = 1;   // 512: what a stream fetches is mapped and evicted by moves of 2 MiB frames
  unsigned signal_locks = 4;  // acquisitions of the process's signal lock per fault; 0: a hint, without a signal
};

struct Scenario {
  WorkloadCosts work;
  MachineCosts machine;
  Design design;
  unsigned threads = 1;
  uint64_t frames = 1 << 20;  // near memory
  uint64_t faults = 60000;    // measured faults; a third as many precede them as warm-up
  uint64_t seed = 1;
};

// The phases of a fault.
enum class Phase {
  kSignal,      // exception entry, signal delivery and return, without waiting
  kSignalLock,  // waiting for the process's signal lock
  kHandle,      // the handler's own work
  kFrames,      // moving the cache line of the frame counter
  kNoFrame,     // waiting for the evictors
  kFetch,       // the link, and waiting for it
  kWake,        // from the arrival of a page until a thread that slept runs
  kMap,         // UFFDIO_COPY, without waiting
  kKernel,      // data that the kernel shares between the mappings of a process, and its free pages
  kPolicy,      // locks of the policy's queues
  kInterrupt,   // interrupts by shootdowns of evictors
  kCore,        // waiting for a core
  kPhases
};
inline constexpr size_t kPhases = static_cast<size_t>(Phase::kPhases);
inline const char* phase_name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"signal",  "signal lock", "own work",     "frames", "no frame",   "fetch",
                                           "wake-up", "map",         "kernel lines", "policy", "interrupts", "core"};
  return kNames[static_cast<size_t>(phase)];
}

struct Use {
  std::string name;
  double share;  // share of the time in which it was in use
};

struct Outcome {
  double us = 0;                               // simulated time of the measured faults
  double pages_per_s = 0;                      // fetched pages
  double access_us = 0;                        // per access of one thread
  double mean_us = 0, p50_us = 0, p99_us = 0;  // per fault
  double phases[kPhases] = {};                 // us per fault
  double evictor_busy = 0;                     // share of the evictors' time in which they work
  std::vector<Use> uses;                       // the shared resources, the busiest first
  uint64_t faults = 0, pages = 0, evicted = 0, batches = 0, frame_waits = 0, synchronous = 0;
  uint64_t max_frames = 0;                                                 // peak of frames in use
  uint64_t queued = 0, in_use = 0, cached = 0, fetching = 0, writing = 0;  // pages and frames at the end
  uint64_t queued_at_start = 0, inserted = 0, taken_out = 0;               // entries of the policy's queues
};

}  // namespace farside::bench::scaling
