// The page by which `farside ctl` talks to a running process. The process holds it as a sealed memfd of this name; who
// may open /proc/PID/fd of the process (its own user, and root) may map it, so it needs no path, no socket and no
// thread.
//
//   ctl:      takes the file's lock, writes local_*, asked++ , waits for answered == asked, reads the report
//   process:  looks at asked some ten times a second (an evictor does), obeys, writes the report, answered = asked
#pragma once
#include <atomic>
#include <cstdint>

namespace farside {

inline constexpr char kControlName[] = "farside-control";

struct ControlPage {
  static constexpr uint64_t kMagic = 0x31'6c7463'64736672;  // changes with the layout
  static constexpr uint32_t kBytes = 4096;

  uint64_t magic;
  std::atomic<uint32_t> asked;
  std::atomic<uint32_t> answered;
  uint64_t local_bytes;  // near memory that is wanted from now on, as SizeOrShare; both 0: as it is
  double local_share;
  char report[kBytes - 32];  // a line of JSON, as --stats gives it for each process
};
static_assert(sizeof(ControlPage) == ControlPage::kBytes && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace farside
