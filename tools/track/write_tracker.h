// Finds the pages of another process that may have been written since the last call, by means of the kernel. The first
// of three methods that works is used; docs/decisions/0009-write-tracking.md gives the reasons for the order.
//
//   write-protect: a userfaultfd of the process with asynchronous write protection, read by PAGEMAP_SCAN (Linux 6.7)
//   soft-dirty:    /proc/PID/clear_refs and the soft-dirty bit of /proc/PID/pagemap, if the kernel maintains it
//   compare:       no tracking: every present page is reported as written
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "process/areas.h"
#include "process/pagemap.h"
#include "tools/track/tracee.h"

namespace farside::track {

using process::Area;
using process::PageRun;

struct Written {
  std::vector<PageRun> pages;  // in order of addresses
  bool fresh = false;     // mapped since the last call: previous contents at these addresses belong to another mapping
  bool known = true;      // false: every present page is reported, because there is no tracking
  bool left_out = false;  // another userfaultfd serves it: reading it could block forever
};

class WriteTracker {
 public:
  enum class Method { kWriteProtect, kSoftDirty, kCompare };
  static const char* name_of(Method method);

  virtual ~WriteTracker() = default;
  virtual Method method() const = 0;
  // Called once per window, before take() of all areas. The soft-dirty method stops the process in it.
  virtual Status begin_window(const std::vector<Area>&) { return {}; }
  // The pages of the area written since its last take(); all present ones if this is the first.
  virtual Result<Written> take(const Area& area) = 0;
};

// For a stopped process, which remains stopped. `wanted`: use this method or fail; nullptr: the first that works.
// *why_not: why better methods were not used; "" if the best was.
Result<std::unique_ptr<WriteTracker>> make_write_tracker(Tracee& tracee, const WriteTracker::Method* wanted,
                                                         std::string* why_not);

}  // namespace farside::track
