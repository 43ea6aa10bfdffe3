// What was tracked, as a live table, JSON, CSV and a picture. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/track/tracker.h"
#include "report/statistics.h"

namespace farside::cli::track {

// What tracking cost.
struct Overhead {
  double elapsed_seconds = 0;
  double tracker_cpu_seconds = 0;
  double stopped_seconds = 0;  // of the process's main thread
  uint64_t stops = 0;
  uint64_t write_faults = 0;
  double write_fault_ns = 0;  // tried on the tracker itself
  uint64_t snapshot_bytes = 0;

  double fault_seconds() const { return static_cast<double>(write_faults) * write_fault_ns / 1e9; }
};

struct Report {
  std::vector<std::string> program;  // or none, if a process was attached to
  int pid = 0;
  std::string method;   // how writes were tracked
  std::string why_not;  // why not in the best method
  double window_seconds = 1;
  std::vector<Window> windows;
  Overhead overhead;

  Changes total() const;
};

// Three lines for the top of the table, and one for each window.
std::string table_head();
std::string table_row(const Window& window);

// What is printed at the end.
std::string summary(const Report& report);

nlohmann::json to_json(const Report& report);

// A line for each window.
std::string to_csv(const Report& report);

// Dirty bytes and amplification over time; lines per dirty page and lengths of runs as cumulated shares.
std::string to_svg(const Report& report);

}  // namespace farside::cli::track
