// Access to memory that the machine may have lost: a mapped page that cannot be provided raises SIGBUS, which here is
// an error of one access. The handler is installed once for the process; other SIGBUS signals go to the handler that
// was there before. Thread-safe.
#pragma once
#include <setjmp.h>

#include <atomic>
#include <cstddef>

namespace farside::server {

// Of this thread: where to go on after a SIGBUS; null outside of guarded().
extern thread_local sigjmp_buf* guard_of_thread;

// Call once before the first use of guarded(). Further calls do nothing.
void install_guard();

// False: `access` met a page that cannot be provided, and was left there. It holds no lock, owns nothing, and does not
// call guarded().
template <typename Access>
bool guarded(Access access) {
  sigjmp_buf back;
  if (sigsetjmp(back, 0) != 0) {
    guard_of_thread = nullptr;
    return false;
  }
  guard_of_thread = &back;
  std::atomic_signal_fence(std::memory_order_seq_cst);  // the handler reads it
  access();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_of_thread = nullptr;
  return true;
}

// As memcpy. Clients may write what is being read; the bytes are then any of both, so sanitizers do not look here.
inline void copy_shared(void* to, const void* from, size_t bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

}  // namespace farside::server
