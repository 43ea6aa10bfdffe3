// The check at load that a program was compiled with headers whose layout this library has (farside/version.h). Part of
// both libraries that implement these headers: preload and libfarside. Called by constructors of the program, before
// main().
#include <dlfcn.h>

#include "base/log.h"
#include "farside/version.h"

namespace {

unsigned major_of(uint64_t layout) { return layout >> 56; }
unsigned minor_of(uint64_t layout) { return layout >> 48 & 255; }

// The program or shared object that has this code.
const char* file_of(const void* code) {
  Dl_info info;
  return dladdr(code, &info) && info.dli_fname ? info.dli_fname : "the program";
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void farside_check_layout_(uint64_t layout) {
  if (layout == FARSIDE_LAYOUT_) return;
  farside::die(
      "{} was compiled with headers of Farside {}.{} that do not fit the library of Farside {}.{}; compile it again "
      "with "
      "the headers of this version",
      file_of(__builtin_return_address(0)), major_of(layout), minor_of(layout), major_of(FARSIDE_LAYOUT_),
      minor_of(FARSIDE_LAYOUT_));
}
