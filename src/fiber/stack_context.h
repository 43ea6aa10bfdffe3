// Stacks, and the switch from one to another: the two routines of Boost.StackContext, with the calls that sanitizers
// need at each step. Separate from fibers and queues, so that only this file depends on Boost and on the sanitizers.
// Async-signal-safe except for make_stack, drop_stack and prepare.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define FARSIDE_FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define FARSIDE_FIBER_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FARSIDE_FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define FARSIDE_FIBER_TSAN 1
#endif
#endif

namespace farside::fibers {

// A thread of control: a fiber, or a worker thread on its own stack.
struct StackContext {
  void* saved = nullptr;           // where it continues, while it does not run
  std::byte* stack_low = nullptr;  // first usable byte; of a thread: set by the address sanitizer's build only
  size_t stack_bytes = 0;
  void (*entry)() = nullptr;        // a prepared context begins here; entry does not return
  void* fake_stack = nullptr;       // of the address sanitizer
  void* sanitizer_fiber = nullptr;  // of the thread sanitizer
};

// Gives the context a stack of near memory with a guard page below it. False: no memory.
bool make_stack(StackContext* context, size_t bytes);
void drop_stack(StackContext* context);

// prepare: the next switch to the context begins at entry, on an empty stack. finished: undoes prepare, after the
// context's last switch.
void prepare(StackContext* context, void (*entry)());
void finished(StackContext* context);
// Makes the calling thread the context.
void adopt_thread(StackContext* context);

// Saves the caller in `from` and continues `to` where it was left. Returns when another context switches to `from`.
void switch_context(StackContext* from, StackContext* to);
// The last switch of a context: it is not saved.
[[noreturn]] void leave_context(StackContext* from, StackContext* to);

inline bool is_on_stack(const StackContext& context, const void* address) {
  auto* byte = static_cast<const std::byte*>(address);
  return byte >= context.stack_low && byte < context.stack_low + context.stack_bytes;
}

}  // namespace farside::fibers
