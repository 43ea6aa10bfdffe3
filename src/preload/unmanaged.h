// Anonymous memory of the process that Farside does not manage, so that it stays near: read from /proc/self/smaps.
#pragma once
#include <cstdint>

#include "pager/pager.h"

namespace farside::preload {

// Bytes that are in memory now. Farside's own tables are in none of them.
struct UnmanagedMemory {
  uint64_t shared = 0;    // shared anonymous memory, memory files, System V segments; each page once
  uint64_t private_ = 0;  // stacks, mappings of less than 64 KiB or of special kinds, those from before Farside's start
  uint64_t data = 0;      // changed pages of files: data of programs and libraries
};

// The largest values that were measured, one of them now. Costs some microseconds for each mapping of the process.
// Accesses no far memory and takes nothing from a heap. Zeros where /proc cannot be read.
UnmanagedMemory unmanaged_peaks(pager::Pager& pager);

// Called regularly: measures if the process has grown by a quarter since the last time, at most ten times a second.
void watch_unmanaged(pager::Pager& pager);

// In the child of a fork: the peaks begin again.
void reset_unmanaged();

}  // namespace farside::preload
