// Where the handlers of the program run. The kernel writes a signal frame by itself, and ends the process if it cannot:
// it would where the program runs on a stack in far memory (coroutines, fibers, a thread's stack from malloc) of which
// a page is absent. So the kernel is made to write all frames to Farside's alternate stack, which is near. From there
// each is copied to the place where the kernel would have written it, by instructions that may fault, and the handler
// is called. A frame in far memory is copied back before the kernel reads it again.
//
//   kernel                    Farside                                             program
//   ----------------------    -----------------------------------------------     -----------------
//   frame on the alternate
//   stack                ->   copy below the interrupted stack pointer       ->   handler, which may
//                                                                                 not return at all
//   rt_sigreturn         <-   copy to the alternate stack, if it is far      <-   returns
//
// A frame stays where it is if a handler of Farside's was interrupted (the signal is deferred, interruptions.h), if the
// program runs on the alternate stack already, or if the handler is to run there (SA_ONSTACK).
//
// Async-signal-safe. docs/decisions/0056.
#pragma once
#include <signal.h>

#include <cstdint>

namespace farside::preload {

// The handler that the kernel is given for all signals that the program handles. It calls farside_on_signal.
extern "C" void farside_enter_signal(int signal, siginfo_t* info, void* context);

// For rt_sigreturn of a restorer of the program's own: the stack pointer of a frame that the kernel can read.
uint64_t near_frame(uint64_t stack_pointer);

}  // namespace farside::preload
