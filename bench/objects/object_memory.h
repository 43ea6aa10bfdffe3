// Far memory with objects, inside the measuring process.
#pragma once
#include <memory>

#include "measure/far_memory.h"

namespace farside::bench::objects_bench {

// One at a time in a process. config.more_bytes is the far memory for objects, besides config.bytes.
Result<std::unique_ptr<FarMemory>> open_with_objects(FarMemoryConfig config, Paths paths = Paths::kHybrid);

}  // namespace farside::bench::objects_bench
