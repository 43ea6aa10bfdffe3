// Signals. Farside owns SIGBUS (faults) and SIGSYS (trapped system calls). The program cannot block them and does not
// see those that are Farside's; its handlers for these two signals are stored here and called for all others. Handlers
// of other signals are stored here too and called by Farside's, with masks that leave SIGBUS and SIGSYS unblocked, and
// never while a handler of Farside's runs (interruptions.h). In signal mode the alternate stack is always Farside's:
// that of the program is only recorded, and its SA_ONSTACK handlers run on Farside's, which is larger. All other
// handlers run on the interrupted stack (signal_frames.h).
//
// Async-signal-safe, except the two install functions and measure_signal_cost, which ordinary code calls. Thread-safe.
#pragma once
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

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
inline constexpr os::SignalSet kAllButOurs = ~kOurSignals;

// Installs the handler of SIGBUS. all_handlers_are_ours: all handlers of the program are installed by
// guarded_sigaction, as in signal mode. Otherwise signals are blocked by the handler's mask during each fault, which
// takes the process's signal lock twice more.
void install_fault_handler(bool all_handlers_are_ours);
// Installs the handler of SIGSYS.
void install_trap_handler();

// The time that the kernel takes to deliver a fault to the handler and to continue after it: medians of 32 faults that
// are caused for this purpose (about 200 us in all). Zeros if it cannot be measured.
struct SignalCost {
  double delivery_us = 0, return_us = 0;
};
SignalCost measure_signal_cost(pager::Pager& pager);

// Whether the program's handler of this signal is to run on an alternate stack.
bool wants_alternate_stack(int signal);

// rt_sigaction of the program. 0 or -errno.
long guarded_sigaction(int signal, const KernelSigaction* action, KernelSigaction* old, size_t set_bytes);

// For the system call of a fork. The child must not inherit the lock of the actions held by a thread that it lacks.
class ActionsInFork {
 public:
  ActionsInFork();
  ~ActionsInFork();
  ActionsInFork(const ActionsInFork&) = delete;
  ActionsInFork& operator=(const ActionsInFork&) = delete;
  // In a child whose handlers the kernel has reset (CLONE_CLEAR_SIGHAND): installs Farside's again.
  void reset_in_child();

 private:
  KernelSigaction bus_ = {}, sys_ = {};
};

// The set without SIGBUS and SIGSYS.
inline os::SignalSet without_ours(os::SignalSet set) { return set & ~kOurSignals; }

// sigaltstack of the program: records the stack. To a handler that runs on Farside's, that one is returned. 0 or
// -errno.
long guarded_sigaltstack(const stack_t* stack, stack_t* old, uint64_t stack_pointer);

// Delivers a signal that is not Farside's to the program's handler, or takes its default action. `mask`: of the
// interrupted program, to which the action adds.
void chain_signal(int signal, siginfo_t* info, void* context, os::SignalSet mask);
inline os::SignalSet mask_of(const void* context) {
  os::SignalSet mask;
  memcpy(&mask, &static_cast<const ucontext_t*>(context)->uc_sigmask, sizeof mask);
  return mask;
}

}  // namespace farside::preload
