// operator new and delete of the program: memory of malloc. Where malloc has none, the program's own C++ runtime takes
// over: its operator new calls malloc again, then the new handler, and throws its bad_alloc. An exception of the
// libstdc++ in this library would have another count of exceptions in flight, and its new handler is never set.
#include <dlfcn.h>
#include <link.h>

#include <bit>
#include <cstdlib>
#include <new>

#include "base/log.h"

#define EXPORT_CXX __attribute__((visibility("default"), noinline))
#define CALLER __builtin_return_address(0)

namespace {

// The function that the caller would reach if this library were not there: a library's own runtime comes first, since
// a library that was opened with RTLD_LOCAL may be the only one that has a runtime.
void* find_next(const char* symbol, const void* caller) {
  Dl_info info;
  link_map* library = nullptr;
  bool known = dladdr1(caller, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) != 0;
  bool is_library = known && library && library->l_name[0] != 0;
  void* handle = is_library ? dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  void* found = handle ? dlsym(handle, symbol) : nullptr;
  if (handle) dlclose(handle);
  return found ? found : dlsym(RTLD_NEXT, symbol);
}

template <typename... Args>
__attribute__((noinline, cold)) void* from_runtime(const char* symbol, const void* caller, Args... arguments) {
  using Function = void* (*)(Args...);
  auto next = reinterpret_cast<Function>(find_next(symbol, caller));
  if (!next)
    farside::die("out of memory: operator new failed, and the program has no C++ runtime that could report it");
  return next(arguments...);
}

void* aligned(size_t bytes, std::align_val_t alignment) {
  auto wanted = static_cast<size_t>(alignment);
  return std::has_single_bit(wanted) ? aligned_alloc(wanted, bytes) : nullptr;
}

}  // namespace

EXPORT_CXX void* operator new(size_t n) {
  void* memory = malloc(n);
  return __builtin_expect(memory != nullptr, 1) ? memory : from_runtime("_Znwm", CALLER, n);
}
EXPORT_CXX void* operator new[](size_t n) {
  void* memory = malloc(n);
  return __builtin_expect(memory != nullptr, 1) ? memory : from_runtime("_Znam", CALLER, n);
}
EXPORT_CXX void* operator new(size_t n, const std::nothrow_t& t) noexcept {
  void* memory = malloc(n);
  return memory ? memory : from_runtime("_ZnwmRKSt9nothrow_t", CALLER, n, &t);
}
EXPORT_CXX void* operator new[](size_t n, const std::nothrow_t& t) noexcept {
  void* memory = malloc(n);
  return memory ? memory : from_runtime("_ZnamRKSt9nothrow_t", CALLER, n, &t);
}
EXPORT_CXX void* operator new(size_t n, std::align_val_t a) {
  void* memory = aligned(n, a);
  return memory ? memory : from_runtime("_ZnwmSt11align_val_t", CALLER, n, a);
}
EXPORT_CXX void* operator new[](size_t n, std::align_val_t a) {
  void* memory = aligned(n, a);
  return memory ? memory : from_runtime("_ZnamSt11align_val_t", CALLER, n, a);
}
EXPORT_CXX void* operator new(size_t n, std::align_val_t a, const std::nothrow_t& t) noexcept {
  void* memory = aligned(n, a);
  return memory ? memory : from_runtime("_ZnwmSt11align_val_tRKSt9nothrow_t", CALLER, n, a, &t);
}
EXPORT_CXX void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t& t) noexcept {
  void* memory = aligned(n, a);
  return memory ? memory : from_runtime("_ZnamSt11align_val_tRKSt9nothrow_t", CALLER, n, a, &t);
}

EXPORT_CXX void operator delete(void* p) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p) noexcept { free(p); }
EXPORT_CXX void operator delete(void* p, size_t) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p, size_t) noexcept { free(p); }
EXPORT_CXX void operator delete(void* p, std::align_val_t) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p, std::align_val_t) noexcept { free(p); }
EXPORT_CXX void operator delete(void* p, size_t, std::align_val_t) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p, size_t, std::align_val_t) noexcept { free(p); }
EXPORT_CXX void operator delete(void* p, const std::nothrow_t&) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p, const std::nothrow_t&) noexcept { free(p); }
EXPORT_CXX void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { free(p); }
EXPORT_CXX void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { free(p); }
