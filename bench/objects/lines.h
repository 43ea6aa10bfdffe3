// The data that most parts use: lines of 64 bytes as far objects, or in a plain array that is paged. And fibers that
// read them.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "bench/objects/object_memory.h"
#include "bench/objects/suite.h"
#include "farside/ptr.hpp"

namespace farside::bench::objects_bench {

// A cache line.
struct Line {
  uint64_t words[8];
};
// Line number i. Half of it compresses, as of programs' data: swap on zram compresses.
Line make_line(uint64_t i);

// How lines come back.
enum class Configuration {
  kPages,        // a plain array, paged
  kHintedPages,  // the same, each page asked for by a hint before it is read
  kAsPages,      // objects, always with their page
  kOneByOne,     // objects, always alone
  kHybrid        // objects, as Farside chooses
};
struct NamedConfiguration {
  const char* name;
  Configuration configuration;
};

Result<std::unique_ptr<FarMemory>> open_for_lines(const Context& context, const std::string& over,
                                                  Configuration configuration);

// Lines by number.
class Lines {
 public:
  // In far memory that open_for_lines() gave for the same way.
  Lines(FarMemory& far, Configuration configuration, uint64_t count);
  // In memory that anybody else pages.
  Lines(std::byte* memory, uint64_t count);

  uint64_t count() const { return count_; }
  // Reads the line's number, or writes beside it; ends the process if the number is another one.
  void read(uint64_t i);
  void write(uint64_t i);
  // Ends the object and makes it anew.
  void replace(uint64_t i) { owners_[i] = make_unique<Line>(make_line(i)); }

 private:
  void fill();

  uint64_t count_;
  FarMemory* hinted_ = nullptr;  // whose hints are used; nullptr: none
  Line* array_ = nullptr;        // nullptr: far objects
  std::vector<unique_ptr<Line>> owners_;
};

// Runs work(0), work(1) ... at a time, each in a fiber of its own, on one worker. Seconds.
double time_fibers(unsigned fibers, const std::function<void(unsigned)>& work);

double bytes_fetched(FarMemory& far);

// Gives the evacuator time to do what it has in hand.
void settle();

}  // namespace farside::bench::objects_bench
