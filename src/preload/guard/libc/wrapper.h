// What wrappers of libc functions have in common. They replace those of libc in the program.
#pragma once
#include <dlfcn.h>

#include <cerrno>
#include <cstdint>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define STACK_POINTER reinterpret_cast<uint64_t>(__builtin_frame_address(0))

namespace farside::preload {

// What libc's function returns for a result of the kernel.
inline long with_errno(long r) {
  if (r >= 0 || r < -4095) return r;
  errno = static_cast<int>(-r);
  return -1;
}

// libc's function of this name.
template <typename Function>
Function* libc_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace farside::preload
