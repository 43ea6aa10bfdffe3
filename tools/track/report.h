// The results of tracking as a live table, JSON, CSV and SVG. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "measure/statistics.h"
#include "tools/track/tracker.h"

namespace farside::track {

// The cost of tracking.
struct Overhead {
  double elapsed_seconds = 0;
  double tracker_cpu_seconds = 0;
  double stopped_seconds = 0;  // of the process's main thread
  uint64_t stops = 0;
  uint64_t write_faults = 0;
  double write_fault_ns = 0;  // measured in the tracker's own process
  uint64_t snapshot_bytes = 0;

  double fault_seconds() const { return static_cast<double>(write_faults) * write_fault_ns / 1e9; }
};

struct Report {
  std::vector<std::string> program;  // empty if the tracker attached to a process
  int pid = 0;
  std::string method;   // the method by which writes were tracked
  std::string why_not;  // why no better method was used; "" if it was the best
  double window_seconds = 1;
  std::vector<Window> windows;
  Overhead overhead;

  Changes total() const;
  uint64_t unseen_pages() const;
};

// The heading of the table (two lines), and a line per window.
std::string table_head();
std::string table_row(const Window& window);

// The summary that is printed at the end.
std::string summary(const Report& report);

nlohmann::json to_json(const Report& report);

// A heading and a line per window.
std::string to_csv(const Report& report);

// Dirty bytes and amplification over time; cumulative distributions of the lines per dirty page and of the run lengths.
std::string to_svg(const Report& report);

}  // namespace farside::track
