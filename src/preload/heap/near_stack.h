// A program may run on a stack that it has allocated, of a coroutine or of clone, and such a stack is far memory. A
// push that faults while the thread holds a lock of the pager would wait for itself. So what ordinary calls of the
// program do in the pager continues on a stack of near memory there.
#pragma once
#include <optional>

#include "pager/pager.h"

namespace farside::preload {

// Calls function(argument) on another stack of 128 KiB, or on this one if there is no memory. It does not throw.
void call_on_near_stack(void (*function)(void*), void* argument);

// Calls work(), which does not throw, and returns its result. Costs one comparison where the stack is near.
template <typename Work>
auto on_near_stack(pager::Pager& pager, Work work) -> decltype(work()) {
  bool is_far = pager.table().contains(reinterpret_cast<uint64_t>(__builtin_frame_address(0)));
  if (!is_far) [[likely]]
    return work();
  struct Task {
    Work& work;
    std::optional<decltype(work())> result;
  } task = {work, {}};
  call_on_near_stack(
      [](void* t) {
        auto* of = static_cast<Task*>(t);
        of->result = of->work();
      },
      &task);
  return *task.result;
}

}  // namespace farside::preload
