#include "ucx/library.h"

#include <dlfcn.h>

#include <cerrno>

namespace farside::ucx {
namespace {

template <typename F>
bool find(void* loaded, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(loaded, name));
  return *function != nullptr;
}

bool find_all(void* loaded, Library* out) {
  bool found = find(loaded, "ucs_status_string", &out->ucs_status_string);  // of libucs, which libucp depends on
#define FARSIDE_FIND(name) found = find(loaded, #name, &out->name) && found;
  FARSIDE_UCP_FUNCTIONS(FARSIDE_FIND)
#undef FARSIDE_FIND
  return found;
}

}  // namespace

Result<const Library*> library() {
  static Library functions;
  void* loaded = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return Status::error(ENOENT, "{}", dlerror());
  if (!find_all(loaded, &functions)) return Status::error(ENOENT, "libucp.so.0 lacks a function");
  return const_cast<const Library*>(&functions);
}

}  // namespace farside::ucx
