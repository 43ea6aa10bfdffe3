// Static programs have a C library (or Go's runtime) of their own, and the thread pointer, the base address of FS, is
// its. Farside's thread-local storage then is at the base of GS, which such programs do not use: every handler begins
// by loading FS from GS, and ends by restoring FS (interruptions.cc). Thread-local variables work as always in between.
//
//   code that runs                        FS          GS
//   ----------------------------------    ---------   ---------
//   dynamic program, and Farside in it    libc's      not used
//   static program                        its own     Farside's
//   Farside's handlers in it              Farside's   Farside's
//
// Both registers are read and written by instructions (FSGSBASE, Linux 5.9). Async-signal-safe, except where noted.
#pragma once
#include <cstdint>

#include "preload/guard/thread/guard_thread.h"

namespace farside::preload {

// 1 in a static program. Set once, before the program starts.
extern "C" char farside_static_program;
inline bool is_static_program() { return farside_static_program != 0; }

// True if the processor, the kernel and libc permit it. Not async-signal-safe.
bool can_switch_thread_pointers();

// Makes this process that of a static program: GS becomes the calling thread's thread pointer, and the program's is 0
// as the kernel sets it at exec. Not async-signal-safe.
void begin_static_program();
// The first step of a new thread of a static program, whose FS is storage of Farside's.
void begin_thread_of_static_program(uint64_t program_thread_pointer);

// arch_prctl of a static program. 0 or -errno.
long thread_pointer_call(int operation, uint64_t address);

// Calls a handler of the program, with the program's thread pointer if that is another.
extern "C" void farside_call_handler(void* handler, int signal, void* info, void* context);

}  // namespace farside::preload
