// `farside bench all`: runs every application native, over far memory with and without hints, and on kernel swap, at
// each share of near memory. The text and the charts are made in all_report.h.
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
  double latency_us = 0;          // added to each fetch over shm, to emulate a slower link
  double cut_off = 20;            // multiple of the native time after which a run is killed
  bool trace = false, fresh = false, quiet = false;
  std::string apps_dir, out;  // directories
};

inline constexpr const char* kResultsFile = "results.json";

// Continues a measurement that was stopped, if its results are in settings.out. *document is filled even if the
// measurement is stopped by a signal (EINTR). The caller has no threads.
Status measure_applications(const AllSettings& settings, nlohmann::json* document);

}  // namespace farside::bench
