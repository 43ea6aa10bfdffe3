#include "base/thread_storage.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

namespace farside {
namespace {

// The first words of libc's thread descriptor on x86-64, at the thread pointer: part of its ABI for compilers.
struct ThreadDescriptor {
  void* self;
  void* vector;  // of thread-local storage; set by _dl_allocate_tls
  void* self_again;
  uint64_t unused[2];
  uint64_t stack_guard;
  uint64_t pointer_guard;
};
static_assert(offsetof(ThreadDescriptor, stack_guard) == 0x28);

// What glibc offers to its own parts for making thread-local storage; null in other C libraries.
struct LibcStorage {
  void* (*allocate)(void*) = reinterpret_cast<void* (*)(void*)>(dlsym(RTLD_DEFAULT, "_dl_allocate_tls"));
  void (*free)(void*, bool) = reinterpret_cast<void (*)(void*, bool)>(dlsym(RTLD_DEFAULT, "_dl_deallocate_tls"));
};
const LibcStorage& libc_storage() {
  static const LibcStorage storage;
  return storage;
}

}  // namespace

bool can_make_thread_storage() { return libc_storage().allocate && libc_storage().free; }

void* make_thread_storage() {
  auto* made = static_cast<ThreadDescriptor*>(libc_storage().allocate(nullptr));
  if (!made) return nullptr;
  auto* ours = static_cast<const ThreadDescriptor*>(__builtin_thread_pointer());
  made->self = made->self_again = made;
  made->stack_guard = ours->stack_guard;
  made->pointer_guard = ours->pointer_guard;
  return made;
}

void free_thread_storage(void* thread_pointer) { libc_storage().free(thread_pointer, true); }

}  // namespace farside
