// Programs without a dynamic linker: static C and C++, Go, Rust for musl. Nothing can be preloaded into them, so the
// program static_loader (main.cc), which the library is preloaded into, becomes them: it maps the executable, builds
// the stack that the kernel would build, and jumps to the entry point. From then on Farside's code runs in handlers
// only. docs/decisions/0024.
#pragma once

extern "C" {
// Replaces the calling program by the static executable at `path`. Does not return: in case of an error, prints it and
// ends the process with status 126.
[[noreturn]] __attribute__((visibility("default"))) void farside_start_static_program(const char* path,
                                                                                      char** arguments,
                                                                                      char** environment);
}
