// The pages of another process, from /proc/PID/pagemap: which are present, which were written since the kernel's
// soft-dirty bits were cleared.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/os.h"
#include "base/status.h"
#include "process/areas.h"

namespace farside::process {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) os::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

struct PageRun {
  uint64_t begin = 0, end = 0;
  bool clean = false;   // still the file's page or the zero page: not written, unless the page was seen before
  bool absent = false;  // discarded, or never populated
};

// Appends a run, or extends the last one that it continues.
void add_run(const PageRun& run, std::vector<PageRun>* runs);

Result<Descriptor> open_pagemap(pid_t pid);

// Pages that are present or in swap; with `only_soft_dirty`, those whose soft-dirty bit is set. Empty once the process
// has ended.
Result<std::vector<PageRun>> present_pages(const Descriptor& pagemap, const Area& area, bool only_soft_dirty = false);

// True if the kernel maintains soft-dirty bits, tested in this process.
bool keeps_soft_dirty();

}  // namespace farside::process
