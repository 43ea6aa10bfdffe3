#include "tools/plan/running.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "launch/control_client.h"
#include "report/format.h"

namespace farside::plan {
namespace {

using nlohmann::json;

constexpr int kPollMs = 200;
constexpr uint64_t kLeaseNs = 2'000'000'000;  // sampling ends so long after this process was killed

// Processes whose pages are sampled as long as this exists and renew() is called.
class Sampling {
 public:
  explicit Sampling(std::vector<std::unique_ptr<ControlledProcess>> processes) {
    for (auto& process : processes) processes_.push_back({std::move(process)});
  }
  ~Sampling() {
    for (const One& one : processes_) {
      if (one.samples >= 0) one.process->sample_until(0), close(one.samples);
    }
  }
  Sampling(const Sampling&) = delete;
  Sampling& operator=(const Sampling&) = delete;

  // Those that do not begin, as stopped ones, are left out.
  Status begin() {
    constexpr uint64_t kPatienceNs = 5'000'000'000;
    for (const One& one : processes_) {
      int others = one.process->open_samples();
      if (others < 0) continue;
      close(others);
      return Status::error(EBUSY, "another farside plan samples process {}; try again when it has ended",
                           one.process->pid());
    }
    size_t begun = 0;
    for (uint64_t end = now_ns() + kPatienceNs; begun < processes_.size() && now_ns() < end && !have_ended();
         usleep(10'000)) {
      renew();
      begun = 0;
      for (One& one : processes_) {
        if (one.samples < 0) one.samples = one.process->open_samples();
        begun += one.samples >= 0;
      }
    }
    if (begun > 0) return {};
    return Status::error(ETIMEDOUT, "process {} does not begin to sample its pages; it may be stopped, or end",
                         processes_.front().process->pid());
  }

  void renew() {
    for (const One& one : processes_) one.process->sample_until(now_ns() + kLeaseNs);
  }

  bool have_ended() const {
    return std::ranges::all_of(processes_, [](const One& one) { return one.process->has_ended(); });
  }

  Result<std::vector<Samples>> read() const {
    std::vector<Samples> read;
    for (const One& one : processes_) {
      if (one.samples < 0) continue;
      Result<Samples> samples = read_samples(fmt::format("/proc/self/fd/{}", one.samples));
      if (!samples.ok()) return samples.status();
      if (samples->rounds.size() > 1) read.push_back(std::move(*samples));
    }
    if (!read.empty()) return read;
    return Status::error(ENODATA,
                         "process {} was sampled too briefly, or has a heap below 8 MiB, which always stays near",
                         processes_.front().process->pid());
  }

 private:
  struct One {
    std::unique_ptr<ControlledProcess> process;
    int samples = -1;  // its file
  };
  std::vector<One> processes_;
};

// One line of progress a second on a terminal, else one.
class Seconds {
 public:
  Seconds(double all, bool quiet)
      : all_(all),
        repeats_(all > 0 && isatty(STDERR_FILENO)),
        progress_(all > 0 ? static_cast<size_t>(std::ceil(all)) : 1, quiet) {}

  bool are_over() const { return all_ > 0 && past() >= all_; }
  void show() {
    if (shown_ > 0 && (!repeats_ || past() < shown_)) return;
    progress_.step(all_ > 0 ? "sampling pages" : "sampling pages until the process ends, or Ctrl-C");
    shown_++;
  }

 private:
  double past() const { return static_cast<double>(now_ns() - start_ns_) / 1e9; }

  const uint64_t start_ns_ = now_ns();
  double all_, shown_ = 0;
  bool repeats_;
  Progress progress_;
};

struct Sampled {
  std::vector<Samples> processes;
  std::string program, transport;
  bool stopped = false;  // by a signal
  bool ended = false;    // the processes have
};

Result<Sampled> sample(pid_t pid, double seconds, bool quiet, const SignalHold& hold) {
  auto found = ControlledProcess::find_all(pid);
  if (found.empty()) return ControlledProcess::not_found(pid);
  Result<json> report = found.front()->ask();
  if (!report.ok()) return report.status();
  Sampled made{.processes = {}, .program = report->value("program", ""), .transport = report->value("transport", "")};
  Sampling sampling(std::move(found));
  Status begun = sampling.begin();
  if (!begun.ok()) return begun;
  for (Seconds time(seconds, quiet); !made.stopped && !time.are_over() && !sampling.have_ended(); time.show()) {
    sampling.renew();
    made.stopped = stop_signal_within(hold, kPollMs);
  }
  made.ended = sampling.have_ended();
  auto processes = sampling.read();
  if (!processes.ok()) return processes.status();
  made.processes = std::move(*processes);
  return made;
}

}  // namespace

Result<json> plan_running(pid_t pid, const OneRunSettings& settings, const cli::RunSettings& run) {
  SignalHold hold;
  auto sampled = sample(pid, settings.seconds, run.options.quiet, hold);
  if (!sampled.ok()) return sampled.status();
  bool over_network = sampled->transport != "shm" && sampled->transport != "file";
  Result<json> made = plan_from(sampled->processes, over_network, settings, run, hold);
  if (!made.ok()) return made;
  (*made)["complete"] = !sampled->stopped;
  (*made)["program"] = {sampled->program};
  if (!sampled->ended) (*made)["pid"] = pid;
  return made;
}

}  // namespace farside::plan
