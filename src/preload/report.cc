#include "preload/report.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/os.h"
#include "preload/heap/limits.h"
#include "preload/heap/refusals.h"
#include "preload/unmanaged.h"

namespace farside::preload {
namespace {

// Replaces what JSON does not permit in a string.
void make_printable(char* text) {
  for (; *text; text++) {
    if (*text == '"' || *text == '\\' || *text < ' ') *text = '?';
  }
}

void program_name(char* name, size_t room) {
  int fd = os::open("/proc/self/comm", O_RDONLY);
  ssize_t n = fd < 0 ? 0 : os::read(fd, name, room - 1);
  if (fd >= 0) os::close(fd);
  size_t length = n > 0 ? static_cast<size_t>(n) : 0;
  if (length > 0 && name[length - 1] == '\n') length--;
  name[length] = 0;
  make_printable(name);
}

// frame_waits has only the faults that waited for a frame; all others count as waits of 0.
double frame_wait_p99_us(const pager::Stats& s) {
  uint64_t fetches = s.get(pager::Counter::kMajorFaults) + s.get(pager::Counter::kZeroFaults);
  return pager::in_unit(pager::Unit::kTicks, s.frame_waits.exceeded_by(fetches / 100));
}

double fault_quantile_us(const pager::Stats& s, uint64_t one_in) {
  return pager::in_unit(pager::Unit::kTicks, s.fault_times.exceeded_by(s.fault_times.count() / one_in));
}

void append_line(const char* path, const char* line, size_t bytes) {
  LimitsLifted lifted;
  int fd = os::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;  // the launcher has ended and removed the folder
  os::write(fd, line, bytes);
  os::close(fd);
}

// Writes one line of JSON into the caller's memory. Members that do not fit are left out.
class ReportLine {
 public:
  ReportLine(char* text, size_t room) : text_(text), room_(room) { text_[used_++] = '{'; }
  void add(const char* name, const char* value) { put("\"{}\":\"{}\",", name, value); }
  void add(const char* name, uint64_t value) { put("\"{}\":{},", name, value); }
  void add(const char* name, double value) { put("\"{}\":{:.3f},", name, value); }
  void add(const char* name, bool value) { put("\"{}\":{},", name, value); }
  size_t finish() {
    text_[used_ - 1] = '}';  // in place of the last comma
    text_[used_++] = '\n';
    return used_;
  }

 private:
  template <typename... Values>
  void put(fmt::format_string<const Values&...> format, const Values&... values) {
    size_t left = room_ - 1 - used_;
    size_t size = fmt::format_to_n(text_ + used_, left, format, values...).size;
    if (size <= left) used_ += size;
  }
  char* text_;
  size_t room_;
  size_t used_ = 0;
};

// What was far at most, as far as it is known: near memory may be less than is allowed, and more may be allowed by now.
std::atomic<uint64_t> g_far_peak_pages{0};

uint64_t far_peak_pages(const pager::Stats& s) {
  uint64_t known =
      std::max(saturating_sub(s.populated_pages, s.near_pages), saturating_sub(s.populated_peak_pages, s.limit_pages));
  uint64_t before = g_far_peak_pages.load();
  while (before < known && !g_far_peak_pages.compare_exchange_weak(before, known)) {}
  return std::max(before, known);
}

void add_gauges(ReportLine& line, const ReportContext& c, const pager::Stats& s) {
  line.add("local_bytes", s.limit_pages * kPageSize);
  line.add("near_bytes", s.near_pages * kPageSize);
  line.add("near_peak_bytes", s.near_peak_pages * kPageSize);
  line.add("near_mean_bytes", s.near_mean_pages * kPageSize);
  line.add("heap_mean_bytes", s.populated_mean_pages * kPageSize);
  line.add("slowdown_percent", static_cast<uint64_t>(100 * s.slowdown));
  line.add("heap_bytes", s.populated_pages * kPageSize);
  line.add("far_peak_bytes", far_peak_pages(s) * kPageSize);
  line.add("heap_peak_bytes", s.populated_peak_pages * kPageSize);
  line.add("metadata_bytes", s.metadata_bytes);
  UnmanagedMemory unmanaged = unmanaged_peaks();
  line.add("unmanaged_shared_bytes", unmanaged.shared);
  line.add("unmanaged_private_bytes", unmanaged.private_);
  line.add("unmanaged_data_bytes", unmanaged.data);
  line.add("forks", c.forks);
  line.add("refused_reservations", refusals());
  line.add("seconds", c.seconds);
}

// Without repair_seconds_left, the end is not known.
void add_copies(ReportLine& line, const remote::RepairStatus& repair) {
  line.add("degraded_slabs", repair.degraded);
  line.add("repaired_slabs", repair.repaired);
  if (repair.seconds_left >= 0) line.add("repair_seconds_left", repair.seconds_left);
}

// The time of faults without waiting, fetching, mapping and accounting: gate, page word, claims, stride detection.
uint64_t lookup_us(const pager::Stats& s) {
  using pager::Counter;
  uint64_t rest = s.get(Counter::kFaultTicks);
  for (Counter part : {Counter::kFetchTicks, Counter::kMapTicks, Counter::kWaitFrameTicks, Counter::kWaitPageTicks,
                       Counter::kAccountTicks}) {
    rest -= std::min(rest, s.get(part));
  }
  return static_cast<uint64_t>(pager::in_unit(pager::Unit::kTicks, rest));
}

void add_counters(ReportLine& line, const pager::Stats& s) {
  for (const pager::NamedCounter& n : pager::kNamedCounters) {
    line.add(n.name, static_cast<uint64_t>(pager::in_unit(n.unit, s.get(n.counter))));
  }
  line.add("lookup_us", lookup_us(s));
  line.add("cycles_per_us", ticks_per_us());
  line.add("busiest_thread_fetches", s.busiest_thread_fetches);
  line.add("fault_p50_us", fault_quantile_us(s, 2));
  line.add("fault_p99_us", fault_quantile_us(s, 100));
  line.add("fault_p999_us", fault_quantile_us(s, 1000));
  line.add("frame_wait_p99_us", frame_wait_p99_us(s));
}

// Time that the counters cannot measure: the kernel's delivery of each fault to the handler, and the return.
void add_signal_time(ReportLine& line, const ReportContext& c, const pager::Stats& s) {
  auto faults = static_cast<double>(s.get(pager::Counter::kFaults));
  line.add("signal_us", static_cast<uint64_t>(c.signal.delivery_us * faults));
  line.add("return_us", static_cast<uint64_t>(c.signal.return_us * faults));
}

}  // namespace

void forget_far_peak() { g_far_peak_pages.store(0); }

size_t format_report(const ReportContext& c, char* text, size_t room) {
  char name[32];
  program_name(name, sizeof name);
  const pager::Stats& s = c.stats;
  ReportLine line(text, room);
  line.add("pid", static_cast<uint64_t>(os::getpid()));
  line.add("program", static_cast<const char*>(name));
  line.add("mode", c.mode == FaultMode::kSignal ? "signal" : "handler");
  line.add("mode_reason", c.mode_reason);
  line.add("transport", c.pager.store()->transport_name());
  line.add("policy", c.pager.policy().name());
  line.add("forked", c.forked);
  add_gauges(line, c, s);
  add_copies(line, c.pager.store()->repair_status());
  add_counters(line, s);
  add_signal_time(line, c, s);
  return line.finish();
}

void append_report(const char* path, const ReportContext& c) {
  static char line[4096];  // once in a process; its stack may be far memory, from which the kernel cannot read here
  append_line(path, line, format_report(c, line, sizeof line));
}

void append_event(const char* path, const char* event) {
  char name[32], text[128];
  program_name(name, sizeof name);
  ReportLine line(text, sizeof text);
  line.add("event", event);
  line.add("pid", static_cast<uint64_t>(os::getpid()));
  line.add("program", static_cast<const char*>(name));
  append_line(path, text, line.finish());
}

void append_failure(const char* path, const char* reason) {
  char name[32], printable[256], text[512];
  program_name(name, sizeof name);
  *stpncpy(printable, reason, sizeof printable - 1) = 0;
  make_printable(printable);
  ReportLine line(text, sizeof text);
  line.add("event", "failure");
  line.add("pid", static_cast<uint64_t>(os::getpid()));
  line.add("program", static_cast<const char*>(name));
  line.add("reason", static_cast<const char*>(printable));
  append_line(path, text, line.finish());
}

void append_native_program(const char* path, const char* program, const char* reason) {
  const char* slash = strrchr(program, '/');
  char name[64], text[256];
  *stpncpy(name, slash ? slash + 1 : program, sizeof name - 1) = 0;
  make_printable(name);
  ReportLine line(text, sizeof text);
  line.add("event", "native");
  line.add("program", static_cast<const char*>(name));
  line.add("reason", reason);
  append_line(path, text, line.finish());
}

}  // namespace farside::preload
