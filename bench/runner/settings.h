// The settings of all benchmarks. Which of them a benchmark has as options, and with which defaults, its row says
// (benchmark.h); the options themselves are the table in options.cc.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace farside::bench {

struct Settings {
  std::string size = "64M", local = "25%";
  uint64_t bytes = 0;  // of data: `size`
  double share = 0;    // of the data that may be near: `local`
  uint64_t accesses = 200000;
  double seconds = 3;
  unsigned repetitions = 3;
  unsigned evictors = 1, server_threads = 1;
  bool zram = true;
  std::vector<std::string> configurations = {}, suites = {}, kinds = {}, apps = {}, figures = {};  // to run; empty: all
  std::vector<unsigned> latencies_us = {0};  // added to each reply of a server
  std::string place = "/tmp";                // a folder on the disk that is measured, or a block device without data
  bool programs = true;
  uint64_t keys = 800000, requests = 500000;            // of redis
  unsigned pages = 8192, seed = 1;                      // of simulated traces
  std::vector<unsigned> shares = {10, 25, 50, 75, 90};  // percent of the memory that may be near
  std::vector<std::string> traces = {};                 // recorded ones: files
  std::string transport = "shm", apps_dir = "";         // of the applications
  std::vector<std::string> transports = {"shm", "tcp"};
  double latency_us = 0;  // added to each of their fetches over shm
  double cut_off = 20;    // times its native time, after which an application is ended
  unsigned app_threads = 2;
  std::vector<unsigned> threads = {1, 8, 16, 24, 32, 48, 64, 96, 128};  // simulated or real ones
  unsigned faults = 30000;                                              // in each simulation
  std::string costs = "";                                               // a result of `scaling`, to take its costs
  double budget = 0;                                                    // seconds for all measurements; 0: no limit
  std::string json = "", plots = "";                                    // a file, a folder; "": none
  bool quick = false, quiet = false;

  // Whether NAME is in the list, or the list is empty.
  static bool wants(const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::ranges::count(names, name) > 0;
  }
  uint64_t near_bytes() const { return static_cast<uint64_t>(share * static_cast<double>(bytes)); }
};

}  // namespace farside::bench
