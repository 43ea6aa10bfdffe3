// The data that most suites use: lines of 64 bytes, as far objects or in a plain array that is paged; and fibers that
// read them.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "bench/objects/object_memory.h"
#include "bench/objects/suites.h"
#include "farside/ptr.hpp"

namespace farside::bench::objects_bench {

// A cache line.
struct Line {
  uint64_t words[8];
};
struct Page {
  uint64_t words[512];
};
// Line number i. About half of it compresses, as is typical of program data: zram compresses.
Line make_line(uint64_t i);

// How lines are fetched.
enum class Configuration {
  kPages,        // a plain array, paged
  kHintedPages,  // the same, with a hint before each read
  kAsPages,      // objects; always the whole page (Paths::kPageOnly)
  kOneByOne,     // objects; always the object alone (Paths::kObjectOnly)
  kHybrid        // objects; Farside chooses per page
};
struct NamedConfiguration {
  const char* name;
  Configuration configuration;
};
inline constexpr const char *kAsPages = "objects, as pages only", *kOneByOne = "objects, one by one only",
                            *kHybrid = "objects, hybrid";

Result<std::unique_ptr<FarMemory>> open_for_lines(const Setup& setup, const char* transport,
                                                  Configuration configuration);

// Lines by number. The methods may be called by several threads or fibers, except for writes to the same line.
class Lines {
 public:
  // In far memory from open_for_lines() with the same configuration.
  Lines(FarMemory& far, Configuration configuration, uint64_t count);
  // In plain memory, such as that of KernelSwap.
  Lines(std::byte* memory, uint64_t count);

  uint64_t count() const { return count_; }
  // Reads the number of the line, or changes another word of it. Ends the process if the number is wrong. May suspend
  // the calling fiber.
  void read(uint64_t i);
  void write(uint64_t i);
  // Replaces the object by a new one with the same number. Not for arrays.
  void replace(uint64_t i) { owners_[i] = make_unique<Line>(make_line(i)); }

 private:
  void fill();

  uint64_t count_;
  FarMemory* hinted_ = nullptr;  // hints are sent to it; nullptr: none
  Line* array_ = nullptr;        // nullptr: far objects
  std::vector<unique_ptr<Line>> owners_;
};

// Runs work(0) to work(fibers - 1), each in its own fiber, on one worker. Returns seconds.
double time_fibers(unsigned fibers, const std::function<void(unsigned)>& work);

double bytes_fetched(FarMemory& far);

// Waits 20 ms, in which the evacuator finishes the work that it has.
void settle();

}  // namespace farside::bench::objects_bench
