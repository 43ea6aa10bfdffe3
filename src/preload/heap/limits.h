// Limits of addresses (RLIMIT_AS) and data (RLIMIT_DATA) that the program sets. Farside takes many addresses, and far
// memory is part of them from the beginning, so the kernel cannot enforce such a limit. Its limit is the program's plus
// a distance that is the same for all processes of a run: what a process executes finds its limit. Whether the program
// may have more memory is decided here, by what it has.
//
// A limit that the run itself began with is less than the distance, and stays the kernel's. Async-signal-safe.
#pragma once
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>

namespace farside::preload {

// While one exists, what is mapped is Farside's, and not the program's.
class OwnMemory {
 public:
  OwnMemory();
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

 private:
  uint64_t addresses_, data_;
};

// Far memory is in use from now on. space: bytes of the far space. Returns whether the program has a limit: then freed
// memory of the heap is to be purged at once.
bool begin_limits(uint64_t space);

// Whether limits of this kind are the program's, at a distance from the kernel's.
bool is_program_limit(int resource);
rlimit limit_of_program(const rlimit& kernel);
rlimit limit_of_kernel(const rlimit& program);
// Whether the kernel's hard limit of this kind is not lowered (see LimitsLifted). The one that the program has set is
// kept for the process and its forks; RLIM_INFINITY: none.
bool keeps_hard_limit(int resource);
rlim_t hard_limit_of_program(int resource);
void keep_hard_limit(int resource, rlim_t limit);
// To be called when a limit was set. The same result.
bool note_limit();

enum class Growth { kAddresses, kData };
// Whether the program may have so many more bytes: of addresses only, or of memory that it may write.
bool is_within_limits(uint64_t bytes, Growth growth);

// While one exists, limits of descriptors and of files' sizes are as high as the kernel permits: for what Farside opens
// and writes when a process begins, forks or ends. For that the kernel's hard limits of these kinds are not lowered
// when the program lowers its own.
class LimitsLifted {
 public:
  LimitsLifted();
  ~LimitsLifted();
  LimitsLifted(const LimitsLifted&) = delete;
  LimitsLifted& operator=(const LimitsLifted&) = delete;

 private:
  static constexpr int kResources[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
  rlimit before_[2];
};

// Bytes of the heap that are in use.
void add_heap_bytes(int64_t bytes);

}  // namespace farside::preload
