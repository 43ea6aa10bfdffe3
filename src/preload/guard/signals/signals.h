// Signals. Farside owns SIGBUS (faults) and SIGSYS (trapped system calls). The program cannot block them and does not
// see those that are Farside's; its handlers for these two signals are stored (program_actions.h) and called for all
// others. Handlers of other signals are stored too and called by Farside's, with masks that leave SIGBUS and SIGSYS
// unblocked, and never while a handler of Farside's runs (interruptions.h). In signal mode the alternate stack is
// always Farside's (thread/alternate_stack.h), and the program's SA_ONSTACK handlers run on it. All other handlers run
// on the interrupted stack (signal_frames.h).
//
// Async-signal-safe, except the two install functions, which ordinary code calls. Thread-safe.
#pragma once
#include <signal.h>

#include "base/os.h"
#include "preload/guard/signals/program_actions.h"

namespace farside::preload {

// Installs the handler of SIGBUS. all_handlers_are_ours: all handlers of the program are installed by
// guarded_sigaction, as in signal mode. Otherwise signals are blocked by the handler's mask during each fault, which
// takes the process's signal lock twice more.
void install_fault_handler(bool all_handlers_are_ours);
// Installs the handler of SIGSYS.
void install_trap_handler();

// rt_sigaction of the program. 0 or -errno.
long guarded_sigaction(int signal, const KernelSigaction* action, KernelSigaction* old);

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

// Delivers a signal that is not Farside's to the program's handler, or takes its default action. `mask`: of the
// interrupted program, to which the action adds.
void chain_signal(int signal, siginfo_t* info, void* context, os::SignalSet mask);

}  // namespace farside::preload
