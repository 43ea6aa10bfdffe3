// The options of a run as its processes get them: a descriptor of sealed memory, which programs inherit. It has the
// block below, so no text is parsed twice, and the servers' secret is in no environment, which other processes can read
// and programs pass on. A variable has the descriptor's number, the same in all processes of the run.
//
// The launcher has measured the rate of the time stamp counter, so that short processes need not.
//
//   0        8         12      16             24
//   | magic  | version | bytes | ticks_per_us | Options ... |
#pragma once
#include <cstddef>
#include <type_traits>

#include "abi/options.h"
#include "abi/run_variables.h"

namespace farside {

struct RunBlock {
  static constexpr uint64_t kMagic = 0x6e75'72'64736672;
  static constexpr uint32_t kVersion = 2;  // changes with the meaning of a field; a new size is noticed without it

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t bytes = sizeof(RunBlock);
  double ticks_per_us = 0;
  Options options;
};
static_assert(std::is_trivially_copyable_v<RunBlock> && std::is_standard_layout_v<RunBlock>);
static_assert(offsetof(RunBlock, version) == 8 && offsetof(RunBlock, bytes) == 12 && offsetof(RunBlock, options) == 24);

// A descriptor that programs inherit, with a high number; or -errno.
int make_run_fd(const Options& options);

// Reads the options, and sets the rate. Returns 0 or -errno: -EBADF if this is not such a descriptor, -EPROTO if
// another version of Farside has made it. Async-signal-safe.
int read_run_fd(int fd, Options* options);

// The descriptor that an environment names; -1: none. Async-signal-safe.
int run_fd_in(const char* const* environment);

// The token of a run with a far file: "FILE,SPACE", the descriptors of the file and of its table, which the processes
// of the run inherit as well. False: another token, and `fds` is as before. Async-signal-safe.
struct FarFileFds {
  int file = -1;
  int space = -1;
};
bool parse_far_file_fds(const char* token, FarFileFds* fds);

}  // namespace farside
