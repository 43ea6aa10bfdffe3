#include "preload/guard/signals/signals.h"

#include <sys/syscall.h>
#include <ucontext.h>

#include <cerrno>

#include "base/sync.h"
#include "preload/guard/process/process.h"
#include "preload/guard/signals/interruptions.h"
#include "preload/guard/signals/signal_frames.h"
#include "preload/guard/signals/signal_masks.h"
#include "preload/guard/thread/thread_pointer.h"
#include "preload/heap/core_dump.h"

namespace farside::preload {
namespace {

constexpr unsigned long kSaRestorer = 0x04000000;

// The signals by which a user or a supervisor ends a program.
bool is_request_to_end(int signal) {
  constexpr os::SignalSet kRequests = os::signal_bit(SIGINT) | os::signal_bit(SIGTERM) | os::signal_bit(SIGHUP);
  return (os::signal_bit(signal) & kRequests) != 0;
}

// Whether Farside has work to do before the default action of this signal.
bool is_default_replaced(int signal) {
  return is_core_dump_prepared(signal) || (is_request_to_end(signal) && reports_when_asked_to_end());
}

// Whether the kernel is given Farside's handler for this action of the program.
bool is_received(int signal, const KernelSigaction& a) {
  return has_handler(a) || (a.handler == reinterpret_cast<void*>(SIG_DFL) && is_default_replaced(signal));
}

// A request to end that the program does not handle. It is not deferred: a fault may wait for a server that is lost.
bool ends_program(int signal) {
  if (!is_request_to_end(signal)) return false;
  ActionsLock lock;
  return !has_handler(g_program_actions[signal]);
}

bool is_ours(int signal) { return (os::signal_bit(signal) & kOurSignals) != 0; }

KernelSigaction kernel_action(int signal) {
  KernelSigaction action = {};
  os::call(SYS_rt_sigaction, signal, nullptr, &action, sizeof(os::SignalSet));
  return action;
}

void set_kernel_action(int signal, const KernelSigaction& action) {
  os::call(SYS_rt_sigaction, signal, &action, nullptr, sizeof(os::SignalSet));
}

// Synchronous errors of the interrupted code, which cannot be deferred.
bool is_own_error(int signal, const siginfo_t* info) {
  constexpr os::SignalSet kErrors =
      os::signal_bit(SIGSEGV) | os::signal_bit(SIGILL) | os::signal_bit(SIGFPE) | os::signal_bit(SIGTRAP);
  return info->si_code > 0 && (os::signal_bit(signal) & kErrors) != 0;
}

}  // namespace

// Called in place of the program's handlers, with all signals blocked except SIGBUS and SIGSYS.
extern "C" void farside_on_signal(int signal, siginfo_t* info, void* context) {
  os::SignalSet mask = mask_of(context);  // of a wait that it ended, until deferred() restores the program's
  bool at_once = is_own_error(signal, info) || ends_program(signal);
  if (!at_once && deferred(signal, info, static_cast<ucontext_t*>(context))) return;
  chain_signal(signal, info, context, mask);
}

namespace {

void install(int signal, void (*handler)(int, siginfo_t*, void*), os::SignalSet mask, unsigned long flags) {
  KernelSigaction action = {reinterpret_cast<void*>(handler),
                            flags | SA_SIGINFO | SA_ONSTACK | SA_NODEFER | kSaRestorer,
                            reinterpret_cast<void*>(farside_restorer), mask};
  KernelSigaction old = {};
  ActionsLock lock;
  os::call(SYS_rt_sigaction, signal, &action, &old, sizeof(os::SignalSet));
  if (old.handler != reinterpret_cast<void*>(handler)) g_program_actions[signal] = old;
}

// While one exists, this thread runs none of Farside's handlers: a handler of the program that one of them calls may
// jump out and never return.
class OutsideHandlers {
 public:
  OutsideHandlers() : before_(this_guard().handlers) { this_guard().handlers = {}; }
  ~OutsideHandlers() { this_guard().handlers = before_; }
  OutsideHandlers(const OutsideHandlers&) = delete;
  OutsideHandlers& operator=(const OutsideHandlers&) = delete;

 private:
  HandlersRunning before_;
};

// The default action: the signal terminates the process, as it would natively. At once, or, where it is blocked while
// the handler runs, when the handler has returned: a core then has the registers of the program.
void take_default_action(int signal) {
  prepare_core_dump(signal);
  if (is_request_to_end(signal)) report_before_end();
  set_kernel_action(signal, {});
  os::call(SYS_tgkill, os::getpid(), os::gettid(), signal);
}

}  // namespace

void install_fault_handler(bool all_handlers_are_ours) {
  install(SIGBUS, farside_enter_sigbus, all_handlers_are_ours ? 0 : SignalsBlocked::kAllButFaults, 0);
  if (!all_handlers_are_ours) return;
  for (int signal = 1; signal < kSignals; signal++) {  // handlers that libraries of the program have installed before
    KernelSigaction now = {};
    if (is_ours(signal) || os::call(SYS_rt_sigaction, signal, nullptr, &now, sizeof(os::SignalSet)) < 0) continue;
    if (is_received(signal, now)) guarded_sigaction(signal, &now, nullptr);
  }
}

void install_trap_handler() {
  // Nothing is masked: signals must reach the program also during a trapped blocking call.
  install(SIGSYS, farside_enter_sigsys, 0, 0);
}

namespace {

// The action that is passed to the kernel in place of the program's.
KernelSigaction wrapped_action(const KernelSigaction& wanted) {
  KernelSigaction action = wanted;
  action.handler = reinterpret_cast<void*>(farside_enter_signal);
  action.flags = (wanted.flags & ~static_cast<unsigned long>(SA_RESETHAND)) | SA_SIGINFO | SA_ONSTACK | kSaRestorer;
  action.restorer = reinterpret_cast<void*>(farside_restorer);
  action.mask = kAllButOurs;
  return action;
}

// The program's action for a signal that is being delivered; SA_RESETHAND takes effect.
KernelSigaction take_action(int signal) {
  ActionsLock lock;
  KernelSigaction action = g_program_actions[signal];
  if (action.flags & SA_RESETHAND) {  // the kernel keeps flags and mask
    KernelSigaction reset = action;
    reset.handler = nullptr;
    g_program_actions[signal] = reset;
    if (!is_ours(signal)) set_kernel_action(signal, is_received(signal, reset) ? wrapped_action(reset) : reset);
  }
  return action;
}

long exchange_action(int signal, const KernelSigaction* wanted, KernelSigaction* previous) REQUIRES(g_actions_lock) {
  bool ours = signal > 0 && signal < kSignals && is_ours(signal);
  bool handled = wanted && is_received(signal, *wanted);
  if (!ours) {
    KernelSigaction action = handled ? wrapped_action(*wanted) : (wanted ? *wanted : KernelSigaction());
    long r = os::call(SYS_rt_sigaction, signal, wanted ? &action : nullptr, previous, sizeof(os::SignalSet));
    if (r < 0) return r;
  }
  if (ours || previous->handler == reinterpret_cast<void*>(farside_enter_signal)) *previous = g_program_actions[signal];
  if (wanted && (ours || handled)) g_program_actions[signal] = *wanted;
  return 0;
}

void call_handler(const KernelSigaction& action, int signal, siginfo_t* info, void* context) {
  OutsideHandlers outside;
  farside_call_handler(action.handler, signal, info, context);  // one without SA_SIGINFO ignores the further arguments
}

}  // namespace

void chain_signal(int signal, siginfo_t* info, void* context, os::SignalSet mask) {
  KernelSigaction action = take_action(signal);
  if (action.handler == reinterpret_cast<void*>(SIG_IGN) && info->si_code <= 0) return;
  if (!has_handler(action)) return take_default_action(signal);
  os::SignalSet before = 0;
  mask |= action.mask | ((action.flags & SA_NODEFER) ? 0 : os::signal_bit(signal));
  mask = without_ours(mask);
  os::sigprocmask(SIG_SETMASK, &mask, &before);
  call_handler(action, signal, info, context);
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
}

long guarded_sigaction(int signal, const KernelSigaction* action, KernelSigaction* old) {
  // Copies on the stack: neither the kernel nor a holder of the lock may access far memory.
  KernelSigaction wanted = {}, previous = {};
  if (action) wanted = *action;
  wanted.mask = without_ours(wanted.mask);
  long r;
  {
    ActionsLock lock;
    r = exchange_action(signal, action ? &wanted : nullptr, &previous);
  }
  if (r == 0 && old) *old = previous;
  return r;
}

// Not analyzed, here and below: between the two is a fork.
ActionsInFork::ActionsInFork() NO_THREAD_SAFETY_ANALYSIS : bus_(kernel_action(SIGBUS)), sys_(kernel_action(SIGSYS)) {
  g_actions_lock.lock();
}
ActionsInFork::~ActionsInFork() NO_THREAD_SAFETY_ANALYSIS { g_actions_lock.unlock(); }

// The kernel keeps what is ignored, without flags and mask.
void ActionsInFork::reset_in_child() NO_THREAD_SAFETY_ANALYSIS {
  void* ignore = reinterpret_cast<void*>(SIG_IGN);
  set_kernel_action(SIGBUS, bus_);
  set_kernel_action(SIGSYS, sys_);
  for (int signal = 1; signal < kSignals; signal++) {
    KernelSigaction& action = g_program_actions[signal];
    action = {action.handler == ignore ? ignore : nullptr, 0, nullptr, 0};
    if (!is_ours(signal) && is_core_dump_prepared(signal) && is_received(signal, kernel_action(signal)))
      set_kernel_action(signal, wrapped_action({}));
  }
}

}  // namespace farside::preload
