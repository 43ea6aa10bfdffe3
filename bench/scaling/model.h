// The model of the pager's fault and eviction paths: application threads, evictors, the cores that they run on, and all
// that they share. It follows src/pager (fault_path.cc, evictor.cc, frames.h, policy/sharded_policy.h) step by step;
// what the kernel does inside is modelled by the locks and counters that all threads of a process share there.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/scaling/costs.h"

namespace farside::bench::scaling {

struct Design {
  unsigned evictors = 4;
  unsigned batch = 128;
  unsigned batches = 4;                // of an evictor that may be under way; 1: not pipelined
  unsigned shards = 16;                // of the policy's queues
  unsigned stripes = 1;                // parts of far space with a userfaultfd and a mapping of their own
  unsigned frame_cache = 1;            // frames that a thread takes at once and keeps for its next faults
  bool look_before_take = false;       // a waiter adds to the shared counter only if it has seen a free frame
  bool take_window_at_once = false;    // the frames of a window by one addition
  bool insert_window_at_once = false;  // the pages of a window into the policy's queue under one lock
  unsigned frame_spins = 500;          // turns in which a thread looks for a frame before it sleeps
  unsigned frames_per_wake = 0;        // frames that come free for each sleeper that is woken; 0: all are woken
  bool synchronous = false;            // a thread that finds no frame evicts a batch itself
  unsigned signal_locks = 4;  // times that a fault takes the process's signal lock; 0: the program calls a hint instead
};

struct Scenario {
  WorkloadCosts work;
  MachineCosts machine;
  Design design;
  unsigned threads = 1;
  uint64_t frames = 1 << 20;  // that may be near
  uint64_t faults = 60000;    // that are measured; a third as many before them are not
  uint64_t seed = 1;
};

// Where the time of a fault goes.
enum class Part {
  kSignal,      // to the handler and back, without waiting
  kSignalLock,  // waiting for the lock of the process's signals
  kHandle,      // our own work
  kFrames,      // the frame counter's cache line
  kNoFrame,     // waiting for the evictors
  kFetch,       // the link, and waiting for it
  kMap,         // UFFDIO_COPY, without waiting
  kKernel,      // what the kernel shares between mappings of a process, and its free pages
  kPolicy,      // locks of the policy's queues
  kInterrupt,   // shootdowns by evictors
  kCore,        // waiting for a core
  kParts
};
inline constexpr size_t kParts = static_cast<size_t>(Part::kParts);
const char* part_name(Part part);

struct Use {
  std::string name;
  double share;  // of the time in which it was busy
};

struct Outcome {
  double us = 0;                               // simulated, of the measured faults
  double pages_per_s = 0;                      // brought near
  double access_us = 0;                        // of a thread
  double mean_us = 0, p50_us = 0, p99_us = 0;  // of a fault
  double parts[kParts] = {};                   // us a fault
  double evictor_busy = 0;                     // share of the evictors' time
  std::vector<Use> uses;                       // of what is shared, the busiest first
  uint64_t faults = 0, pages = 0, evicted = 0, batches = 0, frame_waits = 0, synchronous = 0;
  uint64_t most_frames = 0;                                                // ever in use
  uint64_t queued = 0, in_use = 0, cached = 0, fetching = 0, writing = 0;  // pages and frames at the end
  uint64_t queued_at_start = 0, inserted = 0, taken_out = 0;               // entries of the policy's queues
};

Outcome simulate(const Scenario& scenario);

}  // namespace farside::bench::scaling
