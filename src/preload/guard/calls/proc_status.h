// The number of threads that a program reads of itself in /proc/PID/stat and status, of the process or of a thread:
// without Farside's. Such texts are found by how they begin, not by how the file was opened. Async-signal-safe.
#pragma once
#include <sys/uio.h>

#include <cstddef>

namespace farside::preload {

// To be called after a read of `bytes` into the program's pieces, at a position or at that of the file (-1). Returns
// the bytes that the program gets.
long read_of_own_status(int fd, long position, const iovec* pieces, size_t count, long bytes);

}  // namespace farside::preload
