// The page through which `farside ctl` controls a running process. The process has it as a sealed memfd with the name
// below. Every process that may open /proc/PID/fd of the process (of the same user, or root) can map it, so no path,
// socket or thread is needed.
//
//   ctl:      increments `asked`, waits until `answered` is that or later, reads the report. To set the budget, it
//             locks the file, writes local_* before and 0 after it. Where `served` is 0 it leaves local_* there
//   plan:     renews sample_until_ns as long as it wants samples of the process's pages, which are then in a memfd of
//             the process with the name kSampleFileName (sample_file.h)
//   process:  an evictor reads `asked` about ten times a second; executes the request, sets local_* to 0, writes the
//             report, and sets `answered` to `asked`. It begins and ends its samples as sample_until_ns says. It has no
//             evictor yet, and `served` is 0, while it uses little far memory. A child of fork takes over a request
//
// The launcher has such a page of another name, in which ctl writes local_* and increments `asked` for the whole run.
// The launcher passes them on to each process that it finds from then on.
#pragma once
#include <atomic>
#include <cstdint>

#include "base/size.h"

namespace farside {

inline constexpr char kControlName[] = "farside-control";
inline constexpr char kRunControlName[] = "farside-run-control";

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

  SizeOrShare local() const { return {local_bytes, local_share, local_least}; }
  void set_local(const SizeOrShare& local) {
    local_bytes = local.bytes, local_share = local.share, local_least = local.least;
  }
  // Returns the number of the request.
  uint32_t request(const SizeOrShare& local) {
    set_local(local);
    return asked.fetch_add(1, std::memory_order_acq_rel) + 1;
  }
};
static_assert(sizeof(ControlPage) == ControlPage::kBytes && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace farside
