// What `farside bench all` measures: every application natively, over far memory with and without hints, and on kernel
// swap, at each share of near memory. How it is shown: all_report.h.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bits.h"
#include "base/status.h"
#include "bench/all/results.h"

namespace farside::bench {

struct AllSettings {
  TaskList list;
  uint64_t size = 96 * kMiB, seed = 1;
  unsigned threads = 2;
  std::string transport = "shm";  // or "tcp"
  double latency_us = 0;          // added to shm's, to stand in for a slower link
  double cut_off = 20;            // times the native time
  bool trace = false, fresh = false, quiet = false;
  std::string apps_dir, out;  // directories
};

inline constexpr const char* kResultsFile = "results.json";

// Fills *document also when it is stopped (EINTR); started again, it goes on.
Status measure_applications(const AllSettings& settings, nlohmann::json* document);

}  // namespace farside::bench
