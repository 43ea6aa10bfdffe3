#include "bench/scaling/calibrate.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/bits.h"
#include "base/clock.h"
#include "measure/configurations.h"
#include "measure/process.h"
#include "report/format.h"
#include "report/statistics.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

constexpr double kBatchPages = 128;  // batch size of the measured evictor

// Restricts the calling thread, and the threads that it starts, to these cores.
void run_on(unsigned first, unsigned count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = 0; i < count; i++) CPU_SET(first + i, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// The time to move a cache line from one core to another: two threads write to it alternately. The best of many short
// rounds, in which neither thread was preempted.
double measure_line() {
  constexpr unsigned kRounds = 300, kTurns = 500;
  alignas(64) std::atomic<unsigned> turn{0};
  double best = 1e9;
  auto play = [&](unsigned me) {
    run_on(me, 1);
    uint64_t start = now_ns();
    for (unsigned i = me; i < 2 * kRounds * kTurns; i += 2) {
      while (turn.load(std::memory_order_acquire) != i) {}
      turn.store(i + 1, std::memory_order_release);
      if (me != 0 || i % (2 * kTurns) != 0) continue;
      if (i > 0) best = std::min(best, static_cast<double>(now_ns() - start) / 1000 / (2 * kTurns));
      start = now_ns();
    }
  };
  std::thread other(play, 1);
  std::thread one(play, 0);
  other.join();
  one.join();
  return best;
}

// The time to map a page and drop it again, in us. Each value is the mean of a round of about 0.1 ms.
std::vector<double> time_drops() {
  constexpr unsigned kRounds = 300, kDrops = 30;
  void* page = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::vector<double> rounds;
  for (unsigned round = 0; round < kRounds; round++) {
    uint64_t start = now_ns();
    for (unsigned i = 0; i < kDrops; i++) {
      *static_cast<volatile char*>(page) = 1;
      madvise(page, kPageSize, MADV_DONTNEED);
    }
    rounds.push_back(static_cast<double>(now_ns() - start) / 1000 / kDrops);
  }
  munmap(page, kPageSize);
  return rounds;
}

// The additional time to drop a page when another core runs the program: the shootdown. It compares medians, because in
// the best rounds the other core runs something else.
double measure_shootdown() {
  double alone = 0, beside = 0;
  std::atomic<bool> stop{false};
  std::thread([&] {
    run_on(0, 1);
    alone = median(time_drops());
    std::thread other([&] {
      run_on(1, 1);
      while (!stop.load(std::memory_order_relaxed)) {}
    });
    beside = median(time_drops());
    stop = true;
    other.join();
  }).join();
  return std::max(0.0, beside - alone);
}

Result<json> measure_machine() { return json{{"line", measure_line()}, {"shootdown", measure_shootdown()}}; }

// Several runs of the same cells.
class Runs {
 public:
  void add(json run) { runs_.push_back(std::move(run)); }
  double minimum(const json::json_pointer& at) const { return best(at)[at]; }
  double median_of(const json::json_pointer& at) const {
    std::vector<double> all;
    for (const json& run : runs_) all.push_back(run[at]);
    return median(all);
  }
  // The cell of the run in which it was fastest.
  json cell(size_t i) const {
    json::json_pointer at = json::json_pointer("/cells") / i;
    return best(at / "us")[at];
  }
  size_t cells() const { return runs_.front()["cells"].size(); }

 private:
  const json& best(const json::json_pointer& at) const {
    return *std::min_element(runs_.begin(), runs_.end(),
                             [&](const json& a, const json& b) { return a[at].get<double>() < b[at].get<double>(); });
  }
  std::vector<json> runs_;
};

class Calibration {
 public:
  Calibration(const CalibrationSettings& s, const SignalHold& hold, unsigned cores)
      : s_(s), hold_(hold), cores_(cores) {
    paging_.bytes = s.bytes;
    paging_.local = s.local;
    paging_.accesses = s.accesses;
    paging_.seconds = s.seconds;
  }

  Status run() {
    auto server = ServerProcess::start(hold_, 2 * s_.bytes + 32 * remote::kSlabBytes);
    if (!server.ok()) return server.status();
    auto near = static_cast<uint64_t>(s_.local * static_cast<double>(s_.bytes));
    FarMemoryConfig far = {(*server)->shm(), (*server)->token(), s_.bytes, near, pager::Delivery::kSignal, 1};
    Progress progress(size_t{s_.repetitions} * (cores_ + 1), s_.quiet);
    Status done;
    for (unsigned i = 0; done.ok() && i < s_.repetitions; i++) {
      progress.step("plain memory");
      if (cores_ > 1) done = collect(&machine_, measure_machine);
      if (!done.ok()) break;
      done = collect(&native_, [this] { return measure_plain(paging_, nullptr); });
      for (unsigned n = cores_; done.ok() && n > 0; n--) {
        progress.step(n == 1 ? "one core" : "two cores");
        done = collect(&far_[n - 1], [this, &far, n] {
          run_on(0, n);
          return measure_far(paging_, far);
        });
      }
    }
    return done;
  }

  Costs costs() const {
    Costs c;
    c.frames = static_cast<uint64_t>(s_.local * static_cast<double>(s_.bytes)) / kPageSize;
    c.here.cores = c.here.cores_per_socket = cores_;
    if (cores_ > 1) {
      c.here.line_near = machine_.minimum("/line"_json_pointer);
      // Not the minimum: in that run the other core ran something else.
      c.here.shootdown = machine_.median_of("/shootdown"_json_pointer);
    }
    c.here.line_far = c.here.line_near;
    c.miss_median = far_[cores_ - 1].minimum("/miss/median_us"_json_pointer);
    c.miss_p99 = far_[cores_ - 1].minimum("/miss/p99_us"_json_pointer);
    for (unsigned n = 1; n <= cores_; n++) {
      for (size_t i = 0; i < far_[n - 1].cells(); i++) add_cell(i, n, &c);
    }
    return c;
  }

 private:
  Status collect(Runs* runs, const std::function<Result<json>()>& work) {
    Result<json> result = run_in_child(hold_, work);
    if (!result.ok()) return result.status();
    runs->add(std::move(*result));
    return {};
  }

  // The costs are taken from one thread on all available cores.
  void add_cell(size_t i, unsigned cores, Costs* costs) const {
    json cell = far_[cores - 1].cell(i);
    std::string workload = cell["workload"];
    costs->measured.push_back({workload, cores, cell["threads"], cell["us"]});
    if (cores != cores_ || cell["threads"] != 1) return;
    costs->workloads[workload] = costs_of_cell(cell, native_.cell(i)["us"], cores > 1 ? costs->here.shootdown : 0);
  }

  const CalibrationSettings& s_;
  const SignalHold& hold_;
  unsigned cores_;
  AccessSettings paging_;
  Runs native_, machine_, far_[2];
};

}  // namespace

WorkloadCosts costs_of_cell(const json& cell, double access_us, double shootdown_us) {
  auto get = [&](const char* name) { return cell["counters"].value(name, 0.0); };
  auto at_least_one = [](double v) { return std::max(v, 1.0); };
  double accesses = at_least_one(get("accesses")), faults = at_least_one(get("faults"));
  double pages = at_least_one(get("major_faults") + get("prefetched")), evicted = at_least_one(get("evictions"));
  double waits = get("wait_frame_us") + get("wait_page_us");
  WorkloadCosts w;
  w.access = access_us;
  w.faults_per_access = faults / accesses;
  w.pages_per_fault = std::max(1.0, pages / faults);
  w.dirty = std::min(1.0, get("dirty_evictions") / evicted);  // a batch in progress is in one counter only
  w.signal = std::max(0.5, (cell["us"].get<double>() * accesses - get("fault_us") - accesses * access_us) / faults);
  w.handle = std::max(0.0, (get("fault_us") - get("fetch_us") - get("map_us") - waits) / faults);
  w.fetch = get("fetch_us") / pages;
  w.map = get("map_us") / pages;
  w.select = get("select_us") / evicted;
  w.hold = get("hold_us") / evicted;
  w.unmap = std::max(0.0, get("unmap_us") / evicted - shootdown_us / kBatchPages);
  w.write = get("write_us") / evicted;
  w.release = get("release_us") / evicted;
  return w;
}

Result<Costs> measure_costs(const CalibrationSettings& settings) {
  SignalHold hold;
  cpu_set_t allowed;
  unsigned cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_ISSET(0, &allowed) && CPU_ISSET(1, &allowed) ? 2 : 1;
  Calibration calibration(settings, hold, cores);
  Status done = calibration.run();
  if (!done.ok()) return done;
  return calibration.costs();
}

}  // namespace farside::bench::scaling
