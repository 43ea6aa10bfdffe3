// Which pages of another process may have been written since the last look, by the kernel's own means. Three methods,
// the first that works is taken; docs/decisions/0009-write-tracking.md tells why in this order.
//   write-protect: a userfaultfd of the process with asynchronous write protection, read by PAGEMAP_SCAN (Linux 6.7)
//   soft-dirty:    /proc/PID/clear_refs and the soft-dirty bit of /proc/PID/pagemap, if the kernel keeps it
//   compare:       no tracking: every present page is said to be written
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/track/areas.h"
#include "cli/track/tracee.h"

namespace farside::cli::track {

struct PageRun {
  uint64_t begin = 0, end = 0;
  bool clean = false;   // still the file's own page, or the page of zeros: nothing was written unless seen otherwise
  bool absent = false;  // dropped, or never there
};

struct Written {
  std::vector<PageRun> pages;  // in order
  bool fresh = false;          // mapped since the last look: what lay at these addresses is another mapping
  bool known = true;           // false: every present page is said to be written, for lack of tracking
  bool left_out = false;       // another userfaultfd serves it: reading it could wait for a handler for ever
};

class WriteTracker {
 public:
  enum class Method { kWriteProtect, kSoftDirty, kCompare };
  static const char* name_of(Method method);

  virtual ~WriteTracker() = default;
  virtual Method method() const = 0;
  // Before take() of all areas, once a window. The soft-dirty method stops the process here.
  virtual Status begin_window(const std::vector<Area>&) { return {}; }
  // What was written in the area since its last take(), or all that is present if this is the first.
  virtual Result<Written> take(const Area& area) = 0;
};

// For a stopped process, which is still stopped afterwards. `wanted`: this method or none. *why_not tells why better
// methods were not taken; "" if the best was.
Result<std::unique_ptr<WriteTracker>> make_write_tracker(Tracee& tracee, const WriteTracker::Method* wanted,
                                                         std::string* why_not);

// Nanoseconds that the first write to a protected page costs more than a write, tried in this process; 0 if the kernel
// cannot track.
double write_fault_ns();

// Whether the kernel keeps soft-dirty bits, tried in this process.
bool keeps_soft_dirty();

}  // namespace farside::cli::track
