// A recorded trace of the pages that a program accessed, in order: written by `farside plan --record`, read by `farside
// bench policies --traces`. Pages are numbered in the order of their first access, so a trace says nothing of
// addresses. An access to one of the kNearest pages that were accessed last is left out: no policy could have evicted
// these, and the trace is hundreds of times shorter (stack deletion, A. J. Smith 1977).
//
//   file:  header | for each access: the difference to the page before, zigzag, in 7 bits a byte, low ones first
//
// Not thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace farside {

struct PageTraceHeader {
  static constexpr uint64_t kMagic = 0x31'65636172'746766;  // changes with the format
  uint64_t magic = kMagic;
  uint64_t pages = 0;     // distinct ones
  uint64_t recorded = 0;  // accesses in the file
  uint64_t seen = 0;      // accesses of the program
};
static_assert(sizeof(PageTraceHeader) == 32);

class PageTraceWriter {
 public:
  static constexpr size_t kNearest = 32;

  PageTraceWriter() = default;
  ~PageTraceWriter();
  PageTraceWriter(const PageTraceWriter&) = delete;
  PageTraceWriter& operator=(const PageTraceWriter&) = delete;

  Status open(const std::string& path);
  void access(uint64_t page) {
    header_.seen++;
    if (page != nearest_[0]) access_other(page);
  }
  const PageTraceHeader& header() const { return header_; }
  // Writes what is left and the header.
  Status close();

 private:
  void access_other(uint64_t page);
  void put(uint32_t number);

  std::string path_;
  FILE* file_ = nullptr;
  PageTraceHeader header_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
  std::array<uint64_t, kNearest> nearest_ = filled();  // the most recent first
  uint32_t before_ = 0;

  static constexpr std::array<uint64_t, kNearest> filled() {
    std::array<uint64_t, kNearest> none{};
    for (uint64_t& page : none) page = ~uint64_t{0};
    return none;
  }
};

struct PageTrace {
  PageTraceHeader header;
  std::vector<uint32_t> accesses;  // numbers of pages
};

// EINVAL: not such a file, or damaged.
Result<PageTrace> read_page_trace(const std::string& path);

}  // namespace farside
