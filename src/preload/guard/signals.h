// Signals. Farside owns SIGBUS (faults) and SIGSYS (trapped system calls): the program never sees ours, never blocks
// them, and its own handlers for them are kept here and called for what is not ours. All other handlers are kept here
// too and called by ours, with masks that leave SIGBUS and SIGSYS open, and never in the middle of a fault.
// The kernel's alternate stack is always Farside's own; the program's is only recorded, and its SA_ONSTACK handlers run
// on ours, which is larger.
#pragma once
#include <signal.h>

#include <cstdint>

#include "base/os.h"
#include "pager/pager.h"

namespace farside::preload {

// struct sigaction as the kernel takes it.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  os::SignalSet mask;
};

inline constexpr os::SignalSet kOurSignals = os::signal_bit(SIGBUS) | os::signal_bit(SIGSYS);

// SIGBUS. all_handlers_are_ours: every handler that the program sets comes through guarded_sigaction; else the kernel
// has to keep signals off while a fault is served, which costs two more uses of the process's signal lock.
void install_fault_handler(bool all_handlers_are_ours);
void install_trap_handler();  // SIGSYS

// What the kernel takes to bring a fault to its handler and to go on after it, medians of some faults taken for this
// (about 200 us). Zeros where that cannot be seen.
struct SignalCost {
  double delivery_us = 0, return_us = 0;
};
SignalCost measure_signal_cost(pager::Pager& pager);

// rt_sigaction on behalf of the program. 0 or -errno.
long guarded_sigaction(int signal, const KernelSigaction* action, KernelSigaction* old, size_t set_bytes);

// The set that the program wants blocked, without ours.
inline os::SignalSet without_ours(os::SignalSet set) { return set & ~kOurSignals; }

// sigaltstack on behalf of the program.
long guarded_sigaltstack(const stack_t* stack, stack_t* old, uint64_t stack_pointer);

// Hands a signal that is not ours to the program's own handler, or to its default.
void chain_signal(int signal, siginfo_t* info, void* context);

// Where handlers return to: rt_sigreturn from the guard's allowed range.
extern "C" void farside_restorer();
// Continues as if the signal frame at this stack pointer returned. Does not return.
extern "C" [[noreturn]] void farside_sigreturn_at(uint64_t stack_pointer);

}  // namespace farside::preload
