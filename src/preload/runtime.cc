// The preload library as a whole: reads the options, connects, sets up pager, guard and heap before main(), and reports
// at the end. The process's only mutable globals are in src/preload.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "abi/run_block.h"
#include "abi/static_tls.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread_storage.h"
#include "fiber/wait.h"
#include "objects/api.h"
#include "pager/handler.h"
#include "preload/control.h"
#include "preload/guard/process/last_thread.h"
#include "preload/guard/process/process.h"
#include "preload/guard/process/program_start.h"
#include "preload/guard/signals/faults.h"
#include "preload/guard/signals/signals.h"
#include "preload/guard/thread/alternate_stack.h"
#include "preload/guard/thread/pins.h"
#include "preload/guard/traps/user_dispatch.h"
#include "preload/heap/core_dump.h"
#include "preload/heap/far_heap.h"
#include "preload/heap/limits.h"
#include "preload/heap/mappings.h"
#include "preload/heap/refusals.h"
#include "preload/offload.h"
#include "preload/program_api.h"
#include "preload/report.h"
#include "preload/run_options.h"
#include "preload/trace/trace.h"
#include "preload/unmanaged.h"
#include "remote/connect.h"

namespace farside::preload {
namespace {

struct Runtime {
  Options options;
  FaultMode mode = FaultMode::kSignal;
  const char* mode_reason = "";
  pager::Pager* pager = nullptr;
  pager::FaultHandler* handler = nullptr;
  uint64_t started_ns = 0;
  std::atomic<bool> reported{false};
  enum class LastReport { kNone, kRequested, kBegun, kDone };
  std::atomic<LastReport> last_report{LastReport::kNone};  // the one before a signal ends the process
  int pid = 0;
  std::atomic<uint64_t> forks{0};
  bool began_in_handler_mode = false;
  bool forked = false;            // this process is the child of a fork
  bool counted_evictors = false;  // what they take is known not to be the program's
};
Runtime g_runtime;

[[noreturn]] void stop_with(const Status& status) {
  log_failure(status, kCommandFailed);
  os::exit_group(1);
}

// Selects the mode of serving faults, and the reason that is reported for it.
void choose_mode(Runtime& r) {
  bool can_trap = can_trap_system_calls();
  if (r.options.fault == FaultMode::kHandler) {
    r.mode = FaultMode::kHandler;
    r.mode_reason = "requested";
  } else if (can_trap) {
    r.mode = FaultMode::kSignal;
    r.mode_reason = r.options.fault == FaultMode::kSignal ? "requested" : "system calls can be guarded";
  } else if (r.options.fault == FaultMode::kSignal) {
    stop_with(Status::error(ENOSYS,
                            "signal mode needs Syscall User Dispatch, which this kernel or container does not permit; "
                            "use --fault=handler"));
  } else {
    r.mode = FaultMode::kHandler;
    r.mode_reason = "this kernel or container does not permit Syscall User Dispatch";
  }
}

ReportContext report_context(const Runtime& r) {
  double seconds = static_cast<double>(now_ns() - r.started_ns) / 1e9;
  return {*r.pager, r.pager->stats(), r.mode, r.mode_reason, r.forked, r.forks.load(), seconds, {}};
}

// Async-signal-safe: channels call it under a page fault.
[[noreturn]] void end_without_far_memory(const Status& reason) {
  if (g_runtime.options.report[0] != 0) append_failure(g_runtime.options.report, reason.text());
  die("{}. The program ends, since pages of its memory are stored there", reason.text());
}

void write_report(Runtime& r, bool measure_signals) {
  LimitsLifted lifted;
  write_trace();
  if (!r.pager || r.options.report[0] == 0 || r.reported.exchange(true)) return;
  measure_unmanaged(*r.pager);
  ReportContext context = report_context(r);
  constexpr uint64_t kWorthMeasuring = 1000;  // faults: fewer take no time that matters
  bool by_signal = r.mode == FaultMode::kSignal && context.stats.get(pager::Counter::kFaults) >= kWorthMeasuring;
  if (measure_signals && by_signal)
    context.signal = measure_signal_cost(*r.pager);  // the report's statistics are taken already
  append_report(r.options.report, context);
}

// In an evictor thread: the thread that the signal has interrupted may hold locks that the report needs.
void serve_last_report(Runtime& r) {
  auto requested = Runtime::LastReport::kRequested;
  if (!r.last_report.compare_exchange_strong(requested, Runtime::LastReport::kBegun)) return;
  write_report(r, false);
  r.last_report.store(Runtime::LastReport::kDone);
}

void wait_while(const Runtime& r, Runtime::LastReport state, uint64_t limit_ns) {
  constexpr uint64_t kPollNs = 1'000'000;
  for (uint64_t end = now_ns() + limit_ns; r.last_report.load() == state && now_ns() < end;) os::nanosleep_ns(kPollNs);
}

// In an evictor thread.
void end_with_program(Runtime& r) {
  int status;
  if (!program_has_ended(&status)) return;
  write_report(r, false);
  os::exit_group(status);
}

// A process whose pages cannot be sampled runs without.
void start_sampling(const Runtime& r) {
  if (r.options.sample[0] == 0) return;
  Status sampled = r.pager->sample(r.options.sample);
  if (!sampled.ok()) log(LogLevel::kWarning, "{}", sampled.text());
}

// Under a fault, or in a system call.
void start_pager_threads_late() {
  NearScope near;
  LimitsLifted lifted;
  std::optional<OwnMemory> own;
  if (!std::exchange(g_runtime.counted_evictors, true)) own.emplace();
  open_unmanaged();
  g_runtime.pager->start_threads_late();
}

// When they are needed, but at once where they do more than evicting.
void begin_pager_threads(Runtime& r) {
  bool deferred = r.mode == FaultMode::kSignal && r.options.sample[0] == 0 && !r.pager->store()->has_threads();
  if (deferred && r.pager->evictors().start_when_needed(start_pager_threads_late)) return;
  r.counted_evictors = true;
  open_unmanaged();
  r.pager->start_threads();
}

Status start_pager(Runtime& r) {
  auto delivery = r.mode == FaultMode::kSignal ? pager::Delivery::kSignal : pager::Delivery::kMessages;
  auto store = remote::connect_store(
      {.address = r.options.far_address,
       .token = r.options.token,
       .region_bytes = r.options.space,
       .replicas = r.options.replicas,
       .retry = {r.options.patience_ns},
       .on_failure = end_without_far_memory,
       .all_needed = false,
       .relays = {.tls = r.options.tls_relay, .ucx = r.options.ucx_relay},
       .plain_text = r.options.require_tls ? remote::PlainText::kRefused : remote::PlainText::kAllowed,
       .deferred = !getenv(kAnnounceVariable)});  // the first process finds out whether the server can be reached
  if (!store.ok()) return store.status();
  auto pager = pager::Pager::create(r.options, store->get(), delivery);
  if (!pager.ok()) return pager.status();
  // Both serve faults until the process ends, those of exit handlers included.
  (void)store->release();
  r.pager = pager->release();
  open_control(r.pager, [](char* line, size_t room) { return format_report(report_context(g_runtime), line, room); });
  r.pager->evictors().call_regularly([] {
    serve_control();
    serve_last_report(g_runtime);
    watch_unmanaged(*g_runtime.pager);
    end_with_program(g_runtime);
  });
  start_sampling(r);
  begin_pager_threads(r);
  if (r.mode != FaultMode::kHandler) return {};
  r.handler = new (near_alloc(sizeof(pager::FaultHandler))) pager::FaultHandler(*r.pager);
  return r.handler->start();
}

void check_core(const Runtime& r) {
  if (r.options.core != CoreContent::kAll || r.mode == FaultMode::kSignal) return;
  stop_with(Status::error(ENOTSUP, "--tune core=all needs signal mode ({}); use --tune core=near", r.mode_reason));
}

Status start_tracing(const Runtime& r) {
  if (r.options.trace[0] == 0) return {};
  if (r.mode == FaultMode::kSignal) return start_trace(r.options.trace, r.pager);
  return Status::error(ENOTSUP,
                       "faults cannot be traced in handler mode ({}): call stacks are recorded in signal mode only",
                       r.mode_reason);
}

// Without a report in the end, the process was ended by a signal. In handler mode neither exec nor all exits are
// trapped.
void note_begin(const Runtime& r) {
  if (r.options.report[0] != 0 && r.mode == FaultMode::kSignal) append_event(r.options.report, "begin");
}

void set_up_guard(Runtime& r) {
  find_own_library();
  prepare_own_storage();
  if (r.options.core != CoreContent::kNone && r.mode == FaultMode::kSignal)
    prepare_core_dumps(r.pager, r.options.core == CoreContent::kAll);
  set_guard_pager(r.pager);
  show_far_memory_to_hints(r.pager);
  objects::enable_objects(r.pager, r.options.paths, r.options.page_share);
  enable_offload(r.pager);
  install_fault_handler(r.mode == FaultMode::kSignal);
  install_trap_handler();
  fibers::set_hooks({[] { use_alternate_stack(false); }, [] { use_alternate_stack(true); },
                     [] { guard_pager()->paging().poll_reads(); }, objects::drop_scopes});
  pthread_atfork(nullptr, nullptr, start_threads_in_child);  // libc can create threads again only then
  if (r.mode == FaultMode::kHandler) {
    // Forks that do not pass our fork() are not trapped. Their children have no far memory, so that they stop with a
    // message and do not read zeros.
    return r.pager->addresses().inherit_in_fork(false);
  }
  if (int error = arm_thread(true))
    stop_with(Status::error(-error, "cannot arm Syscall User Dispatch (error {}); use --fault=handler", -error));
}

void announce(const Runtime& r) {
  if (r.options.quiet || !getenv(kAnnounceVariable)) return;
  const SizeOrShare& budget = r.options.local;
  std::string local = budget.is_automatic() ? fmt::format("what a slowdown of {:.0f} % needs", r.options.slowdown * 100)
                      : budget.is_share()   ? fmt::format("{:.0f} % of the heap", budget.share * 100)
                                            : format_size(budget.bytes);
  bool signal = r.mode == FaultMode::kSignal;
  bool lacks_huge = !r.pager->paging().can_use_huge_pages() && r.options.huge != HugePages::kNever &&
                    r.options.writeback == WriteBack::kPage;
  char line[512];
  auto end =
      fmt::format_to_n(line, sizeof line, "farside: {} mode ({}), {} near, far memory over {}{}{}\n",
                       signal ? "signal" : "handler", r.mode_reason, local, r.pager->store()->transport_name(),
                       r.pager->space().unmaps_in_batches() ? "" : ", unmapping page by page (kernel before 6.16)",
                       lacks_huge ? ", without huge pages (see farside doctor)" : "");
  os::write(2, line, end.size < sizeof line ? end.size : sizeof line);
}

// Removes a variable in place. The program may have a setenv() and an unsetenv() of its own, as bash has, that know
// nothing of the environment yet.
void remove_variable(const char* name) {
  char** kept = environ;
  for (char** entry = environ; *entry; entry++) {
    if (!sets(*entry, name)) *kept++ = *entry;
  }
  *kept = nullptr;
}

// What the launcher or the guard of exec has set for an audited program, and the program is not to see. In handler mode
// it stays, since system() and popen() pass it on without a call that could be changed.
void hide_static_tls() {
  if (in_handler_mode()) return;
  char* tunables = getenv(kTunablesVariable);
  char* ours = getenv(kAuditVariable) && tunables ? strstr(tunables, kStaticTlsTunable) : nullptr;
  if (!ours || ours[strlen(kStaticTlsTunable)] != 0) return;
  if (ours == tunables) remove_variable(kTunablesVariable);
  else ours[-1] = 0;
}

// Valgrind does not know userfaultfd and Syscall User Dispatch, and places memory itself.
void refuse_valgrind() {
  const char* libraries = getenv("LD_PRELOAD");
  if (libraries && strstr(libraries, "vgpreload_"))
    stop_with(Status::error(ENOSYS, "Valgrind cannot run a program with far memory; run valgrind without farside"));
}

__attribute__((constructor(101))) void start() {
  static bool begun = false;
  if (std::exchange(begun, true)) return;
  Runtime& r = g_runtime;
  r.started_ns = now_ns();
  r.pid = os::getpid();
  int fd = run_fd_in(environ);
  if (fd < 0) return;  // preloaded without a launcher: the program runs natively
  NearScope near;
  LimitsLifted lifted;
  Status taken = take_options(fd, &r.options);
  if (!taken.ok()) {
    log(LogLevel::kWarning, "{}: process {} runs natively", taken.text(), os::getpid());
    return;
  }
  set_log_level(r.options.log);
  refuse_valgrind();
  choose_mode(r);
  check_core(r);
  r.began_in_handler_mode = r.mode == FaultMode::kHandler;
  std::optional<OwnMemory> own(std::in_place);
  Status started = start_pager(r);
  if (!started.ok()) stop_with(started);
  Status traced = start_tracing(r);
  if (!traced.ok()) stop_with(traced);
  announce(r);
  remove_variable(kAnnounceVariable);  // only the first process of a run prints it
  hide_static_tls();
  enable_far_mappings(r.pager);
  Status heap = enable_far_heap(r.pager);
  if (!heap.ok()) stop_with(heap);
  set_up_guard(r);
  own.reset();
  if (begin_limits(r.options.space)) purge_always();
  note_begin(r);
}

using PthreadCreate = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
PthreadCreate libc_pthread_create() {
  static const auto function = reinterpret_cast<PthreadCreate>(dlsym(RTLD_NEXT, "pthread_create"));
  return function;
}

__attribute__((destructor)) void finish() { report_at_exit(); }

}  // namespace

// A library of the program may start threads in its constructor, and constructors of other libraries run first. The
// guard must be armed before, since threads inherit it.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*run)(void*), void* argument) {
  start();
  return libc_pthread_create()(thread, attributes, run, argument);
}

void report_at_exit() { write_report(g_runtime, true); }

// A process that shares this one's memory, such as a child of vfork, is another one.
static bool in_own_process() { return os::getpid() == g_runtime.pid; }

void end_thread(int status) {
  if (in_own_process()) {
    note_thread_end(status);
    if (g_runtime.pager && !g_runtime.pager->evictors().started() && is_last_thread()) report_at_exit();
  }
  if (!own_storage()) objects::forget_thread();  // else its scopes are another thread's
  if (g_runtime.pager) g_runtime.pager->paging().detach_thread();
}

bool reports_when_asked_to_end() {
  const Runtime& r = g_runtime;
  return r.pager && (r.options.report[0] != 0 || tracing());
}

void report_before_end() {
  constexpr uint64_t kUntilBegunNs = 1'000'000'000, kUntilDoneNs = 30'000'000'000;
  Runtime& r = g_runtime;
  if (!in_own_process()) return;
  auto none = Runtime::LastReport::kNone;
  if (!r.last_report.compare_exchange_strong(none, Runtime::LastReport::kRequested)) return;
  r.pager->evictors().start_if_deferred();
  wait_while(r, Runtime::LastReport::kRequested, kUntilBegunNs);
  wait_while(r, Runtime::LastReport::kBegun, kUntilDoneNs);
}

void note_exec() {
  const Runtime& r = g_runtime;
  if (r.pager && r.options.report[0] != 0) append_event(r.options.report, "exec");
}

void note_failed_exec() {
  if (g_runtime.pager) note_begin(g_runtime);
}

void note_native_program(const char* path, const char* reason) {
  const Runtime& r = g_runtime;
  if (r.pager && r.options.report[0] != 0) append_native_program(r.options.report, path, reason);
}

bool owns_fd(int fd) {
  const Runtime& r = g_runtime;
  return r.pager && (r.pager->owns_fd(fd) || owns_control_fd(fd) || owns_unmanaged_fd(fd) || owns_run_fd(fd) ||
                     (r.handler && r.handler->owns_fd(fd)));
}

void note_fork_in_child() {
  g_runtime.forked = true;
  g_runtime.reported.store(false);
  g_runtime.last_report.store(Runtime::LastReport::kNone);
  g_runtime.pid = os::getpid();
  g_runtime.forks.store(0);
  g_runtime.started_ns = now_ns();
  if (std::exchange(g_runtime.mode, FaultMode::kSignal) == FaultMode::kHandler) install_fault_handler(true);
  g_runtime.mode_reason = "forked processes page by signal";
  g_runtime.handler = nullptr;
  note_begin(g_runtime);
  reset_unmanaged();
  forget_refusals();
  forget_far_peak();
  reset_offload_in_child();
  reopen_control_in_child();
  trace_in_child();
  start_sampling(g_runtime);
}

void start_threads_in_child() {
  NearScope near;  // what libc allocates for a thread must be near
  LimitsLifted lifted;
  if (g_runtime.pager->forks().has_snapshot()) begin_pager_threads(g_runtime);
  objects::start_threads_in_child();
}

// Also a forked child of a process in handler mode is in signal mode.
bool serves_static_programs() { return g_runtime.pager && !g_runtime.began_in_handler_mode; }

bool in_handler_mode() { return g_runtime.mode == FaultMode::kHandler; }

}  // namespace farside::preload
