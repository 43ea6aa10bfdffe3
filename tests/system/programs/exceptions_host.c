// A program without a C++ runtime, which opens a library that has one.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  void (*run)(void) = library ? (void (*)(void))dlsym(library, "allocate_and_fail") : NULL;
  if (!run) return puts("no library"), 1;
  run();
  return 0;
}
