#include "fiber/wait.h"

#include "fiber/worker.h"

namespace farside::fibers {

bool in_fiber() {
  Worker* worker = this_worker();
  Fiber* fiber = worker ? worker->current() : nullptr;
  return fiber && !fiber->in_call && fiber->holds == 0 && is_on_stack(fiber->context, __builtin_frame_address(0));
}

bool in_fiber(os::SignalSet interrupted_mask) { return in_fiber() && this_worker()->normal_mask() == interrupted_mask; }

bool polls_soon() { return this_worker()->polls_soon(); }

void wait_until(bool (*ready)(void*), void* arg) { this_worker()->wait_until(ready, arg); }

}  // namespace farside::fibers
