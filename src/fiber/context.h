// Stacks, and the switch from one to another: Boost.Context's two routines, with the sanitizers told of every step.
// Knows nothing of fibers and queues. Async-signal-safe but for make_stack, drop_stack and prepare.
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

// Something that runs: a fiber, or a worker thread on its own stack.
struct Context {
  void* saved = nullptr;           // where it goes on, while it does not run
  std::byte* stack_low = nullptr;  // first usable byte; a thread's is known only to the address sanitizer
  size_t stack_bytes = 0;
  void (*entry)() = nullptr;        // a prepared context begins here and never returns from it
  void* fake_stack = nullptr;       // address sanitizer's
  void* sanitizer_fiber = nullptr;  // thread sanitizer's
};

// Gives the context a stack with a guard page below it, near memory in any case. False: no memory.
bool make_stack(Context* context, size_t bytes);
void drop_stack(Context* context);

// The next switch to the context begins at entry, on an empty stack. finished() ends what prepare() began, once the
// context has made its last switch.
void prepare(Context* context, void (*entry)());
void finished(Context* context);
// Makes a context of the calling thread.
void adopt_thread(Context* context);

// Saves the caller in `from` and goes on where `to` was left. Returns when somebody switches to `from`.
void switch_context(Context* from, Context* to);
// The same for a context that ends with it.
[[noreturn]] void leave_context(Context* from, Context* to);

inline bool is_on_stack(const Context& context, const void* address) {
  auto* byte = static_cast<const std::byte*>(address);
  return byte >= context.stack_low && byte < context.stack_low + context.stack_bytes;
}

}  // namespace farside::fibers
