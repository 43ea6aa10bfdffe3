#include "preload/guard/signals.h"

#include <sys/syscall.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/sync.h"
#include "fiber/wait.h"
#include "preload/guard/guard.h"
#include "preload/guard/interruptions.h"
#include "preload/guard/process.h"
#include "preload/guard/signal_frames.h"
#include "preload/guard/thread_pointer.h"
#include "preload/guard/traps.h"
#include "preload/heap/core_dump.h"
#include "preload/trace/trace.h"

namespace farside::preload {
namespace {

constexpr unsigned long kSaRestorer = 0x04000000;

constexpr int kSignals = 65;  // 1 .. 64

// The program's actions for the signals that Farside's handlers receive: SIGBUS, SIGSYS, and all for which the program
// has a handler. The lock is held with all signals blocked, for a few instructions and at most one rt_sigaction.
SpinLock g_lock;  // guards g_program_actions, and keeps it consistent with the kernel's actions
KernelSigaction g_program_actions[kSignals] = {};

// While the cost of signals is measured: when the last fault entered the handler, and when the handler was done.
std::atomic<bool> g_timing{false};
std::atomic<uint64_t> g_entered{0}, g_left{0};

bool has_handler(const KernelSigaction& a) {
  return a.handler != reinterpret_cast<void*>(SIG_DFL) && a.handler != reinterpret_cast<void*>(SIG_IGN);
}

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

// Holds g_lock with all signals blocked: a handler that interrupted the holder would wait for its own thread.
class ActionsLock {
 public:
  ActionsLock() {
    constexpr os::SignalSet kAll = ~os::SignalSet{0};
    os::sigprocmask(SIG_SETMASK, &kAll, &before_);
    g_lock.lock();
  }
  ~ActionsLock() {
    g_lock.unlock();
    os::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  ActionsLock(const ActionsLock&) = delete;
  ActionsLock& operator=(const ActionsLock&) = delete;

 private:
  os::SignalSet before_ = 0;
};

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

bool is_write_fault(const ucontext_t* context) { return (context->uc_mcontext.gregs[REG_ERR] & 2) != 0; }

// Synchronous errors of the interrupted code, which cannot be deferred.
bool is_own_error(int signal, const siginfo_t* info) {
  constexpr os::SignalSet kErrors =
      os::signal_bit(SIGSEGV) | os::signal_bit(SIGILL) | os::signal_bit(SIGFPE) | os::signal_bit(SIGTRAP);
  return info->si_code > 0 && (os::signal_bit(signal) & kErrors) != 0;
}

void fault(pager::Pager& pager, uint64_t address, ucontext_t* interrupted, bool in_fiber) {
  bool write = is_write_fault(interrupted);
  if (tracing()) trace_fault(address, write, interrupted);
  if (pager.fault(address, write, in_fiber) == pager::FaultOutcome::kNotMapped) {
    pager.guard_page(address);  // the access is repeated and fails as it would natively, with SIGSEGV
  }
}

// A fault of a fiber may let other fibers run on this thread, so a flag of the thread cannot defer signals: they are
// blocked.
void fault_in_fiber(pager::Pager& pager, uint64_t address, ucontext_t* interrupted) {
  os::sigprocmask(SIG_BLOCK, &SignalsBlocked::kAllButFaults, nullptr);
  t_guard.handlers.sigbus = 0;
  fault(pager, address, interrupted, true);
}

}  // namespace

// Called in place of the program's handlers, with all signals blocked except SIGBUS and SIGSYS.
extern "C" void farside_on_signal(int signal, siginfo_t* info, void* context) {
  os::SignalSet mask = mask_of(context);  // of a wait that it ended, until deferred() restores the program's
  bool at_once = is_own_error(signal, info) || ends_program(signal);
  if (!at_once && deferred(signal, info, static_cast<ucontext_t*>(context))) return;
  chain_signal(signal, info, context, mask);
}

extern "C" void farside_on_sigbus(int signal, siginfo_t* info, void* context) {
  bool timing = g_timing.load(std::memory_order_relaxed);
  if (timing) g_entered.store(ticks(), std::memory_order_relaxed);
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  pager::Pager* pager = guard_pager();
  // si_code distinguishes an absent page (BUS_ADRERR) from a signal that was sent. A foreign page may be of a file that
  // has become shorter.
  bool far = pager && info->si_code > 0 && pager->contains(address) && !pager->is_foreign(address);
  if (!far) return chain_signal(signal, info, context, mask_of(context));
  auto* interrupted = static_cast<ucontext_t*>(context);
  if (fibers::in_fiber(mask_of(context))) fault_in_fiber(*pager, address, interrupted);
  else fault(*pager, address, interrupted, false);
  if (timing) g_left.store(ticks(), std::memory_order_relaxed);
}

namespace {

void install(int signal, void (*handler)(int, siginfo_t*, void*), os::SignalSet mask, unsigned long flags) {
  KernelSigaction action = {reinterpret_cast<void*>(handler),
                            flags | SA_SIGINFO | SA_ONSTACK | SA_NODEFER | kSaRestorer,
                            reinterpret_cast<void*>(farside_restorer), mask};
  KernelSigaction old = {};
  os::call(SYS_rt_sigaction, signal, &action, &old, sizeof(os::SignalSet));
  if (old.handler != reinterpret_cast<void*>(handler)) g_program_actions[signal] = old;
}

// While one exists, this thread runs none of Farside's handlers: a handler of the program that one of them calls may
// jump out and never return.
class OutsideHandlers {
 public:
  OutsideHandlers() : before_(t_guard.handlers) { t_guard.handlers = {}; }
  ~OutsideHandlers() { t_guard.handlers = before_; }
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
    if (is_received(signal, now)) guarded_sigaction(signal, &now, nullptr, sizeof(os::SignalSet));
  }
}

void install_trap_handler() {
  // Nothing is masked: signals must reach the program also during a trapped blocking call.
  install(SIGSYS, farside_enter_sigsys, 0, 0);
}

SignalCost measure_signal_cost(pager::Pager& pager) {
  constexpr size_t kSamples = 32;
  uint64_t delivery[kSamples], back[kSamples];
  std::byte* pages = pager.reserve(kSamples * kPageSize, kPageSize);
  if (!pages) return {};
  size_t seen = 0;
  if (pager.commit(pages, kSamples * kPageSize).ok()) {
    g_timing.store(true);
    for (size_t i = 0; i < kSamples; i++) {
      uint64_t start = ticks();
      static_cast<void>(*static_cast<volatile std::byte*>(pages + i * kPageSize));
      uint64_t end = ticks(), entered = g_entered.load(), left = g_left.load();
      if (entered < start || left < entered || end < left) continue;  // a fault of another thread was in between
      delivery[seen] = entered - start;
      back[seen++] = end - left;
    }
    g_timing.store(false);
    pager.decommit(pages, kSamples * kPageSize);
  }
  pager.release(pages, kSamples * kPageSize);
  if (seen == 0) return {};
  std::nth_element(delivery, delivery + seen / 2, delivery + seen);
  std::nth_element(back, back + seen / 2, back + seen);
  return {static_cast<double>(delivery[seen / 2]) / ticks_per_us(),
          static_cast<double>(back[seen / 2]) / ticks_per_us()};
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
  if (action.flags & SA_RESETHAND) {
    g_program_actions[signal] = {};
    if (!is_ours(signal)) set_kernel_action(signal, is_received(signal, {}) ? wrapped_action({}) : KernelSigaction());
  }
  return action;
}

long exchange_action(int signal, const KernelSigaction* wanted, KernelSigaction* previous) {
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

long guarded_sigaction(int signal, const KernelSigaction* action, KernelSigaction* old, size_t set_bytes) {
  if (set_bytes != sizeof(os::SignalSet)) return -EINVAL;
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

bool wants_alternate_stack(int signal) { return (g_program_actions[signal].flags & SA_ONSTACK) != 0; }

ActionsInFork::ActionsInFork() : bus_(kernel_action(SIGBUS)), sys_(kernel_action(SIGSYS)) { g_lock.lock(); }
ActionsInFork::~ActionsInFork() { g_lock.unlock(); }

// The kernel keeps what is ignored, without flags and mask.
void ActionsInFork::reset_in_child() {
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

namespace {
// The kernel's limit for an alternate stack. libc's MINSIGSTKSZ grows with the processor's registers, and exceeds the
// 32 KiB that Go's runtime has where there are tile registers (AMX).
#if defined(__aarch64__)
constexpr size_t kMinStackBytes = 5120;
#else
constexpr size_t kMinStackBytes = 2048;
#endif

bool on_own_stack(uint64_t stack_pointer) {
  return stack_pointer >= t_guard.stack_low && stack_pointer < t_guard.stack_high;
}
}  // namespace

long guarded_sigaltstack(const stack_t* stack, stack_t* old, uint64_t stack_pointer) {
  GuardThread& g = t_guard;
  bool on_it = on_own_stack(stack_pointer);
  stack_t wanted = {};
  if (stack) wanted = *stack;
  stack_t previous = {reinterpret_cast<void*>(g.app_stack), 0, g.app_stack_bytes};
  if (!g.app_stack) previous = {nullptr, SS_DISABLE, 0};
  // The truth for a handler that looks for its own stack, as Go's do; uc_stack of its context says the same.
  if (on_it && g.app_stack) previous = {reinterpret_cast<void*>(g.stack_low), SS_ONSTACK, g.stack_high - g.stack_low};
  if (stack) {
    if (on_it && g.app_stack) return -EPERM;
    bool disable = (wanted.ss_flags & SS_DISABLE) != 0;
    if (!disable && wanted.ss_size < kMinStackBytes) return -ENOMEM;
    g.app_stack = disable ? 0 : reinterpret_cast<uint64_t>(wanted.ss_sp);
    g.app_stack_bytes = disable ? 0 : wanted.ss_size;
  }
  if (old) *old = previous;
  return 0;
}

}  // namespace farside::preload
