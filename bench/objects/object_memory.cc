#include "bench/objects/object_memory.h"

#include "fiber/wait.h"
#include "objects/api.h"

namespace farside::bench::objects_bench {
namespace {

// The pager that the fibers' hooks call. It is global because hooks have no argument.
pager::Pager* g_pager = nullptr;

void enable_objects(pager::Pager& pager, Paths paths) {
  g_pager = &pager;
  objects::enable_objects(&pager, paths);
  fibers::set_hooks({nullptr,
                     [] {
                       objects::forget_thread();
                       g_pager->paging().detach_thread();
                     },
                     [] { g_pager->paging().poll_reads(); }, objects::drop_scopes});
}

}  // namespace

Result<std::unique_ptr<FarMemory>> open_with_objects(FarMemoryConfig config, Paths paths) {
  config.opened = [paths](pager::Pager& pager) { enable_objects(pager, paths); };
  config.closing = objects::disable_objects;
  return FarMemory::create(config);
}

}  // namespace farside::bench::objects_bench
