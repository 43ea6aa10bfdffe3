// Finds the allocation site of a far address, for the recorder. A site is the call stack of an allocation. Two tables
// hold the last site of each page and of each 2 MiB of far space. Large allocations set all their pages; small ones are
// sampled and set the page in which they begin, which they share with others of similar size. Lock-free and
// async-signal-safe, except start_sites. Memory comes from the kernel directly.
#pragma once
#include "abi/trace_file.h"
#include "base/status.h"

namespace farside::preload {

inline constexpr uint64_t kMaxTraceSites = 8192;

Status start_sites(uint64_t space_begin, uint64_t space_bytes);

// Records an allocation at the stack with this key. bytes_represented: its bytes and those of allocations that were not
// sampled since the last record.
void note_site(uint64_t stack, uint64_t address, uint64_t bytes, uint64_t bytes_represented);

// The number of the site plus one; 0: none is recorded.
uint64_t site_at(uint64_t address);

const TraceSite* trace_sites();  // kMaxTraceSites entries, some of them empty

}  // namespace farside::preload
