// Maps the executable of a static program as the kernel does at exec. Its segments are near: the kernel writes to words
// in them at any time (a thread's id when it ends), and they are small beside what a program allocates.
#pragma once
#include <cstdint>

#include "base/status.h"

namespace farside::preload {

struct ElfImage {
  uint64_t entry;
  uint64_t headers;  // the program headers, in memory
  uint64_t header_count;
  bool executes_stack;  // PT_GNU_STACK asks for that
};

// `fd` is the file; ENOEXEC if it is no static x86-64 executable, EEXIST if its addresses are in use.
Result<ElfImage> map_executable(const char* path, int fd);

}  // namespace farside::preload
