// Far memory with objects in the measuring process: FarMemory with the object layer and the fibers' hooks for it.
#pragma once
#include <memory>

#include "measure/far_memory.h"

namespace farside::bench::objects_bench {

// At most one per process. config.bytes is the arena for paging; config.more_bytes is the far memory for objects.
Result<std::unique_ptr<FarMemory>> open_with_objects(FarMemoryConfig config, Paths paths = Paths::kHybrid);

}  // namespace farside::bench::objects_bench
