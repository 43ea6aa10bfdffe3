#include "fiber/stack_context.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>

#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"

#ifdef FARSIDE_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FARSIDE_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace farside::fibers {
namespace {

using boost::context::detail::transfer_t;

constexpr int kAdviceGuardInstall = 102;  // MADV_GUARD_INSTALL, Linux 6.13

// Passed by the context that is switched away from to the one that continues; on the stack of the former.
struct Switch {
  StackContext* from;
  StackContext* to;
};

void arrived(transfer_t transfer) {
  auto* last = static_cast<Switch*>(transfer.data);
  last->from->saved = transfer.fctx;
#ifdef FARSIDE_FIBER_ASAN
  const void* low = nullptr;
  __sanitizer_finish_switch_fiber(last->to->fake_stack, &low, &last->from->stack_bytes);
  last->from->stack_low = static_cast<std::byte*>(const_cast<void*>(low));
#endif
}

void begin(transfer_t transfer) {
  StackContext* self = static_cast<Switch*>(transfer.data)->to;
  arrived(transfer);
  self->entry();
  __builtin_unreachable();
}

void announce_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] StackContext* to) {
#ifdef FARSIDE_FIBER_ASAN
  __sanitizer_start_switch_fiber(fake_stack, to->stack_low, to->stack_bytes);
#endif
}

}  // namespace

// A guard page by madvise does not split the mapping, so adjacent stacks share one entry in the kernel's table of
// mappings (vm.max_map_count, 65530 by default). mprotect, the fallback before Linux 6.13, needs two entries for each
// stack.
bool make_stack(StackContext* context, size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
  long address = os::mmap(nullptr, bytes + kPageSize, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (os::is_error(address)) return false;
  auto* guard = reinterpret_cast<std::byte*>(address);
  bool guarded =
      os::madvise(guard, kPageSize, kAdviceGuardInstall) == 0 || os::mprotect(guard, kPageSize, PROT_NONE) == 0;
  if (!guarded) {
    os::munmap(guard, bytes + kPageSize);
    return false;
  }
  context->stack_low = guard + kPageSize;
  context->stack_bytes = bytes;
  return true;
}

void drop_stack(StackContext* context) {
  os::munmap(context->stack_low - kPageSize, context->stack_bytes + kPageSize);
  context->stack_low = nullptr;
}

void prepare(StackContext* context, void (*entry)()) {
  context->entry = entry;
  std::byte* top = context->stack_low + context->stack_bytes;
  context->saved = boost::context::detail::make_fcontext(top, context->stack_bytes, begin);
#ifdef FARSIDE_FIBER_TSAN
  context->sanitizer_fiber = __tsan_create_fiber(0);
#endif
}

void finished([[maybe_unused]] StackContext* context) {
#ifdef FARSIDE_FIBER_TSAN
  __tsan_destroy_fiber(context->sanitizer_fiber);
#endif
#ifdef FARSIDE_FIBER_ASAN
  context->fake_stack = nullptr;
  ASAN_UNPOISON_MEMORY_REGION(context->stack_low, context->stack_bytes);  // the last frames did not return
#endif
}

void adopt_thread([[maybe_unused]] StackContext* context) {
#ifdef FARSIDE_FIBER_TSAN
  context->sanitizer_fiber = __tsan_get_current_fiber();
#endif
}

void switch_context(StackContext* from, StackContext* to) {
  Switch both = {from, to};
  announce_switch(&from->fake_stack, to);
#ifdef FARSIDE_FIBER_TSAN
  __tsan_switch_to_fiber(to->sanitizer_fiber, 0);
#endif
  arrived(boost::context::detail::jump_fcontext(to->saved, &both));
}

void leave_context(StackContext* from, StackContext* to) {
  Switch both = {from, to};
  announce_switch(nullptr, to);
#ifdef FARSIDE_FIBER_TSAN
  __tsan_switch_to_fiber(to->sanitizer_fiber, 0);
#endif
  boost::context::detail::jump_fcontext(to->saved, &both);
  die("internal error: a fiber was resumed after its end");
}

}  // namespace farside::fibers
