// What the isolated process gives up before foreign code runs in it, in this order; the filters (filter.h) come last. A
// step that fails ends the process (give_up()).
#pragma once
#include <cstdint>

namespace farside::sandbox {

// The root becomes a file system of its own that holds the objects and nothing else, and can be read only.
void leave_files(int objects, uint64_t object_bytes);

// Bounds on what loading may take. The server sets those of functions, and limits the time.
// memory: that functions may allocate. mapped: addresses of the region.
void limit_resources(uint64_t memory, uint64_t mapped);

// The process has all capabilities of its namespaces until now.
void leave_user(unsigned user);

}  // namespace farside::sandbox
