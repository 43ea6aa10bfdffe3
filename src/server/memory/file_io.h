// Whole reads and writes of a file. Results are 0 or -errno. Thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace farside::server {

int read_file(int fd, uint64_t offset, void* to, size_t bytes);
int write_file(int fd, uint64_t offset, const void* from, size_t bytes);
// The memory that the kernel uses for the file.
uint64_t file_memory(int fd);

}  // namespace farside::server
