#include "base/thread_storage.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "base/os.h"

extern "C" {
uint64_t farside_blocks = 0, farside_block_bytes = 0;
}

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

// ---- Own storage ----

namespace {

uint64_t g_offset = 0;  // of the library's variables from the thread pointer
size_t g_bytes = 0;     // of these variables; 0: not prepared

int find_variables(dl_phdr_info* info, size_t, void*) {
  auto here = reinterpret_cast<uint64_t>(&g_offset);
  bool is_this = false;
  size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_LOAD) is_this |= here - (info->dlpi_addr + part.p_vaddr) < part.p_memsz;
    if (part.p_type == PT_TLS) bytes = part.p_memsz;
  }
  if (!is_this) return 0;
  g_offset = reinterpret_cast<uint64_t>(info->dlpi_tls_data) - thread_pointer();
  g_bytes = info->dlpi_tls_data ? bytes : 0;
  return 1;
}

size_t block_bytes() { return align_up(align_up(sizeof(OwnStorage), kCacheLine) + g_bytes, kCacheLine); }

uint64_t read_gs() {
  uint64_t base;
  asm volatile("rdgsbase %0" : "=r"(base));
  return base;
}

bool is_block(uint64_t address) { return address - farside_blocks < farside_block_bytes; }

}  // namespace

uint64_t thread_pointer() {
  uint64_t base;
  asm volatile("rdfsbase %0" : "=r"(base));
  return base;
}

bool prepare_own_storage() {
  constexpr unsigned long kFsGsBase = 2;  // HWCAP2_FSGSBASE
  if ((getauxval(AT_HWCAP2) & kFsGsBase) != 0) dl_iterate_phdr(find_variables, nullptr);
  return g_bytes > 0;
}

OwnStorage* make_own_storage(size_t number, size_t count, uint64_t thread_pointer) {
  if (g_bytes == 0) return nullptr;
  if (is_block(read_gs()) && !own_storage()) use_own_storage(nullptr);  // its creator's: the new one may be the same
  if (!farside_blocks) farside_blocks = reinterpret_cast<uint64_t>(os::map_near(count * block_bytes()));
  if (!farside_blocks) return nullptr;
  __atomic_store_n(&farside_block_bytes, count * block_bytes(), __ATOMIC_RELEASE);
  auto* storage = reinterpret_cast<OwnStorage*>(farside_blocks + number * block_bytes());
  memset(static_cast<void*>(storage), 0, block_bytes());
  uint64_t variables = align_up(reinterpret_cast<uint64_t>(storage + 1), kCacheLine);
  *storage = {thread_pointer, variables - g_offset};
  return storage;
}

void use_own_storage(OwnStorage* storage) { asm volatile("wrgsbase %0" : : "r"(storage)); }

OwnStorage* own_storage() {
  if (farside_block_bytes == 0) return nullptr;
  uint64_t gs = read_gs();
  if (!is_block(gs)) return nullptr;
  auto* storage = reinterpret_cast<OwnStorage*>(gs);
  return storage->thread_pointer == thread_pointer() ? storage : nullptr;
}

}  // namespace farside
