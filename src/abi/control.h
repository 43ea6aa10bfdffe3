// The page through which `farside ctl` controls a running process. The process has it as a sealed memfd with the name
// below. Every process that may open /proc/PID/fd of the process (of the same user, or root) can map it, so no path,
// socket or thread is needed.
//
//   ctl:      increments `asked`, waits until `answered` is that or later, reads the report. To set the budget, it
//             locks the file, writes local_* before and 0 after it
//   plan:     renews sample_until_ns as long as it wants samples of the process's pages, which are then in a memfd of
//             the process with the name kSampleFileName (sample_file.h)
//   process:  an evictor reads `asked` about ten times a second; executes the request, writes the report, and sets
//             `answered` to `asked`. It begins and ends its samples as sample_until_ns says. It has no evictor yet, and
//             `served` is 0, while it uses little far memory
#pragma once
#include <atomic>
#include <cstdint>

namespace farside {

inline constexpr char kControlName[] = "farside-control";

struct ControlPage {
  static constexpr uint64_t kMagic = 0x34'6c7463'64736672;  // changes with the layout
  static constexpr uint32_t kBytes = 4096;
  static constexpr uint64_t kMaxSampleNs = 10'000'000'000;  // ahead of now

  uint64_t magic;
  std::atomic<uint32_t> asked;
  std::atomic<uint32_t> answered;
  uint64_t local_bytes;  // the new limit of near memory, as SizeOrShare; both 0: unchanged
  double local_share;
  uint64_t local_least;
  std::atomic<uint64_t> sample_until_ns;  // by now_ns(); in the past: no samples
  std::atomic<uint32_t> served;           // 1: requests are answered
  char report[kBytes - 52];               // a line of JSON, as --stats writes it for each process
};
static_assert(sizeof(ControlPage) == ControlPage::kBytes && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace farside
