// static_loader: becomes the static executable that FARSIDE_STATIC_PROGRAM names, with this process's arguments. The
// preload library does it; without that the program runs natively.
#include "preload/static_program/static_program.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "abi/run_variables.h"

int main(int, char** arguments) {
  const char* path = getenv(farside::kStaticVariable);
  if (!path) {
    fprintf(stderr, "static_loader: farside run starts this program; it is of no use by itself\n");
    return 2;
  }
  auto* start =
      reinterpret_cast<decltype(&farside_start_static_program)>(dlsym(RTLD_DEFAULT, "farside_start_static_program"));
  if (start) start(path, arguments, environ);
  execv(path, arguments);
  perror(path);
  return 126;
}
