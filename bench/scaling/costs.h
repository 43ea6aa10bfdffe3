// The inputs of the simulation: costs in microseconds, measured on this machine or published for large ones. The
// sources of the values: docs/internals/scaling.md.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace farside::bench::scaling {

// One workload, measured with one thread and one evictor.
struct WorkloadCosts {
  double access = 0.02;          // an access to a near page
  double faults_per_access = 1;  // the other accesses are to near pages
  double pages_per_fault = 1;    // including prefetched pages
  double dirty = 0;              // share of the evicted pages
  double signal = 2.2;           // per fault: exception entry, signal delivery, return
  double handle = 0.3;           // per fault: the handler's own work
  double fetch = 0;              // per page: waiting for the transport; 0 if it is read in place
  double map = 1.3;              // per page
  double select = 0.1;           // per evicted page, as all that follow
  double hold = 0;
  double unmap = 0.5;  // without the shootdown
  double write = 0;
  double release = 0;
};

// How far memory is reached. All 0: it is read and written in place.
struct LinkCosts {
  double submit = 0;                       // per request: the thread's work to send it
  double complete = 0, complete_page = 0;  // per request and page: the thread's work to take the reply
  double serve = 0, serve_page = 0;        // the same of the server's; 0: no server's processor is involved
  double latency = 0;                      // of a request of one page, without the work above
  double page = 0;                         // per page: what the network or the disk transfers one after the other
  bool in_place() const { return latency == 0 && page == 0; }
};

struct MachineCosts {
  unsigned cores = 2, cores_per_socket = 2;
  double line = 0.05, line_far = 0.13;  // to move a cache line to another core of the socket; of another socket
  double siglock_hold = 0.32;           // per fault, in four acquisitions: the process's signal lock
  double zone_hold = 0.03;              // per page: the lock of the kernel's free pages, taken once for many
  double lru_hold = 0.06;               // per page: the lock of the LRU lists, taken once for many
  double shard_hold = 0.02;             // per page: the lock of a policy's shard
  double pause = 0.05;                  // an iteration of a spin loop
  double shootdown = 2.6, shootdown_per_core = 0;  // first other core that runs the program; each further one
  double shootdown_serial = 0.05;                  // of these, per core: the part in which senders exclude each other
  double interrupt = 1.0;                          // time that a core loses to a shootdown by another core
  double wake = 1.5, wake_latency = 35;            // a wake-up: CPU time of the waker; until the sleeper runs
  double slice = 3000;                             // time slice, where threads share a core
  double move = 5;                                 // of a frame of 2 MiB between two addresses (UFFDIO_MOVE)
  double copy = 0.25;                              // of a page, from shared memory to a frame
  LinkCosts link;
  unsigned servers = 1;         // threads of the memory server, each with some of the connections
  bool server_is_here = false;  // they share the program's cores
};

// A measurement on this machine that the model must reproduce.
struct Measured {
  std::string workload, tier;  // "shm", "tcp", "file"
  unsigned cores, threads;
  double us;  // per access of one thread
};

struct Costs {
  std::map<std::string, WorkloadCosts> workloads;  // over shm; "random read, tcp": over other tiers
  std::map<std::string, LinkCosts> tiers;          // "tcp", "file": of this machine
  MachineCosts here;
  uint64_t frames = 0;  // frames of near memory in the measurements
  std::vector<Measured> measured;
  double miss_median = 0, miss_p99 = 0;  // of random reads by one thread; 0: not measured
};

nlohmann::json to_json(const Costs& costs);
// EINVAL if a field is missing or is not a number of at least 0.
Result<Costs> parse_costs(const nlohmann::json& document);

// The machine of MAGE's evaluation (two sockets of 28 cores, 192 Gbit/s, 3.9 us), large enough for all threads.
MachineCosts large_machine(unsigned cores);
// The costs of the workload there: pages are fetched over the link, and evictors post writes to it.
WorkloadCosts over_link(WorkloadCosts workload);

// The costs of a workload over a tier are those over shm where they were not measured.
const WorkloadCosts& costs_over(const Costs& costs, const std::string& workload, const std::string& tier);

}  // namespace farside::bench::scaling
