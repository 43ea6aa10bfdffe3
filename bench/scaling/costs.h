// What the simulation is fed with: costs in microseconds, measured on the machine at hand or published for large ones.
// Where each figure comes from: docs/internals/scaling.md.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench::scaling {

// One workload, measured with one thread and one evictor.
struct WorkloadCosts {
  double access = 0.02;          // an access to a page that is near
  double faults_per_access = 1;  // the other accesses find their page near
  double pages_per_fault = 1;    // with those that are prefetched
  double dirty = 0;              // share of the evicted pages
  double signal = 2.2;           // a fault: the kernel's way to the handler and back
  double handle = 0.3;           // a fault: our own work
  double fetch = 0;              // a page: waiting for the transport; 0 where it is read in place
  double map = 1.3;              // a page
  double select = 0.1;           // an evicted page, and the following
  double hold = 0;
  double unmap = 0.5;  // without the shootdown
  double write = 0;
  double release = 0;
};

struct MachineCosts {
  unsigned cores = 2, cores_per_socket = 2;
  double line_near = 0.05, line_far = 0.13;        // a cache line goes to another core of the socket; of another socket
  double siglock_hold = 0.32;                      // a fault, in four times: the signal lock of the process
  double zone_hold = 0.03;                         // a page: the lock of the kernel's free pages, taken once for many
  double lru_hold = 0.06;                          // a page: the lock of its lists of used pages, taken once for many
  double shard_hold = 0.02;                        // a page: the lock of a policy's shard
  double pause = 0.05;                             // a turn of a spin loop
  double shootdown = 2.6, shootdown_per_core = 0;  // for the first other core that runs the program; for each more
  double shootdown_serial = 0.05;                  // of these, for each core: what one sender does after the other
  double interrupt = 1.0;                          // that a core loses to a shootdown by another
  double wake = 1.5, wake_latency = 35;            // a sleeper: what its waker spends; until it runs
  double slice = 3000;                             // of a core's time, where threads share it
  double link_latency = 0, link_page = 0;          // 0: far memory is read and written in place
};

// A figure of the machine at hand that the model must give as well.
struct Measured {
  std::string workload;
  unsigned cores, threads;
  double us;  // of a thread, for one access
};

struct Costs {
  std::map<std::string, WorkloadCosts> workloads;
  MachineCosts here;
  uint64_t frames = 0;  // near, in the measurements
  std::vector<Measured> measured;
  double miss_median = 0, miss_p99 = 0;  // of random reads by one thread; 0: not measured
};

nlohmann::json to_json(const Costs& costs);
// Fails where a field is missing or is no number of at least 0.
Result<Costs> parse_costs(const nlohmann::json& document);

// The machine of MAGE's evaluation (two sockets of 28 cores, 192 Gbit/s, 3.9 us), large enough for all threads.
MachineCosts large_machine(unsigned cores);
// What the workload costs there: pages come over the link, and evictors hand pages to it.
WorkloadCosts over_link(WorkloadCosts workload);

}  // namespace farside::bench::scaling
