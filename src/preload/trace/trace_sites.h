// Which allocation a far address belongs to, for the recorder. Sites are call stacks of allocations; two tables say for
// each page and for each 2 MiB of far space which site was given it last. Large allocations enter all their pages,
// small ones are sampled and enter the page they begin in, which they share with others of their size.
// Lock-free; async-signal-safe; memory from the kernel directly.
#pragma once
#include "abi/trace_file.h"
#include "base/status.h"

namespace farside::preload {

inline constexpr uint64_t kMaxTraceSites = 8192;

Status start_sites(uint64_t space_begin, uint64_t space_bytes);

// Enters an allocation made at the stack with this key. `bytes_represented`: how much it stands for, itself and those
// that were not sampled.
void note_site(uint64_t stack, uint64_t address, uint64_t bytes, uint64_t bytes_represented);

// Number of the site plus one, 0 if none is known.
uint64_t site_at(uint64_t address);

const TraceSite* trace_sites();  // kMaxTraceSites places, empty ones among them

}  // namespace farside::preload
