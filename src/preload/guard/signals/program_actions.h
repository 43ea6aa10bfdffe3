// The program's actions for the signals that Farside's handlers receive: SIGBUS, SIGSYS, and all for which the program
// has a handler. Async-signal-safe.
#pragma once
#include <signal.h>

#include "base/os.h"
#include "base/sync.h"

namespace farside::preload {

// struct sigaction as the kernel takes it.
struct KernelSigaction {
  void* handler;
  unsigned long flags;
  void* restorer;
  os::SignalSet mask;
};

inline constexpr int kSignals = 65;  // 1 .. 64

// The lock is held with all signals blocked, for a few instructions and at most one rt_sigaction.
extern SpinLock g_actions_lock;  // also keeps the actions consistent with those of the kernel
extern KernelSigaction g_program_actions[kSignals] GUARDED_BY(g_actions_lock);

// Holds g_actions_lock with all signals blocked: a handler that interrupted the holder would wait for its own thread.
class SCOPED_CAPABILITY ActionsLock {
 public:
  ActionsLock() ACQUIRE(g_actions_lock) {
    constexpr os::SignalSet kAll = ~os::SignalSet{0};
    os::sigprocmask(SIG_SETMASK, &kAll, &before_);
    g_actions_lock.lock();
  }
  ~ActionsLock() RELEASE() {
    g_actions_lock.unlock();
    os::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ActionsLock(const ActionsLock&) = delete;
  ActionsLock& operator=(const ActionsLock&) = delete;

 private:
  os::SignalSet before_ = 0;
};

inline bool has_handler(const KernelSigaction& a) {
  return a.handler != reinterpret_cast<void*>(SIG_DFL) && a.handler != reinterpret_cast<void*>(SIG_IGN);
}

// Whether the program's handler of this signal is to run on an alternate stack.
// One word, read without the lock.
inline bool wants_alternate_stack(int signal) NO_THREAD_SAFETY_ANALYSIS {
  return (g_program_actions[signal].flags & SA_ONSTACK) != 0;
}

}  // namespace farside::preload
