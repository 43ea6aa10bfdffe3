// The settings of a stress run, from the command line.
#pragma once
#include <cstdint>
#include <string>

namespace farside::stress {

struct Settings {
  double seconds = 10;
  uint64_t seed = 1;
  unsigned threads = 4;           // at most 8, so that pinned pages never fill the smallest budget
  uint64_t memory = 48ull << 20;  // far memory in use, all threads together
  unsigned local = 25;            // percent of it that may be near; 0: changes continuously between 5 and 50
  std::string delivery = "signal";
  std::string transport = "direct";
  std::string policy = "2q";
  unsigned evictors = 1;
  std::string writeback = "auto";
  std::string huge = "auto";
  bool prefetch = true;
  bool faults = false;  // inject failures and pauses; needs FARSIDE_EXPENSIVE_CHECKS
  bool forks = true;    // signal delivery only
  bool protect = true;

  // Without a server: the far memory is that of this process.
  bool is_local() const { return transport == "direct" || transport == "copy"; }
};

}  // namespace farside::stress
