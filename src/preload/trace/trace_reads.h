// Memory of this process, for the recorder. Thread-safe and async-signal-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside::preload {

// The id of the process. A system call only at the first use.
uint32_t traced_process();
// Called in the child of a fork.
void forget_process();

// Reads memory of this process without ever faulting. Returns the bytes read from the start of the range.
size_t read_safely(uint64_t address, void* to, size_t bytes);

}  // namespace farside::preload
