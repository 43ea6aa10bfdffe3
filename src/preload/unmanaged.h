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

// Opens /proc/self/smaps, with a high number, so that a measurement takes no number that the program may expect to get.
void open_unmanaged();
bool owns_unmanaged_fd(int fd);

// The largest values that were measured. Zeros where /proc cannot be read.
UnmanagedMemory unmanaged_peaks();

// Measures now, but not a process of less than 8 MiB, Farside's own included. Time grows with the mappings and with the
// pages that are near: some 10 ms for a GiB. Accesses no far memory and takes nothing from a heap.
void measure_unmanaged(pager::Pager& pager);

// Called regularly: measures if the process has grown by a quarter since the last time, at most ten times a second.
void watch_unmanaged(pager::Pager& pager);

// In the child of a fork: the peaks begin again.
void reset_unmanaged();

}  // namespace farside::preload
