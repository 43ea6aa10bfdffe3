#include "tools/plan/one_run.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/bits.h"
#include "base/clock.h"
#include "launch/installation.h"
#include "launch/run_captured.h"
#include "measure/statistics.h"
#include "pager/pages/budget.h"
#include "report/format.h"
#include "report/machine.h"
#include "tools/plan/points.h"

namespace farside::plan {
namespace {

using nlohmann::json;

constexpr size_t kPoints = 40;
constexpr double kMinBytes = static_cast<double>(pager::Budget::kMinPages * kPageSize);

// ---- The run ----

// Asks a program that does not end by itself to end: after a time, or when its load has ended.
class Ending {
 public:
  explicit Ending(const OneRunSettings& settings) : settings_(settings) {}
  ~Ending() {
    if (load_ > 0) kill(-load_, SIGKILL), waitpid(load_, nullptr, 0);
  }

  bool is_wanted() const { return settings_.seconds > 0 || !settings_.load.empty(); }
  bool was_asked() const { return asked_ns_ > 0; }
  const Status& load_status() const { return failed_; }

  // group: of the program's processes.
  void look(pid_t group) {
    if (asked_ns_ > 0) {
      if (now_ns() - asked_ns_ > kGraceNs) kill(-group, SIGKILL);
      return;
    }
    if (!settings_.load.empty() && load_ < 0 && since_start() > kStartSeconds) start_load();
    bool ended = load_ > 0 && load_has_ended();
    bool late = settings_.seconds > 0 && since_start() > settings_.seconds;
    if (!ended && !late && failed_.ok()) return;
    asked_ns_ = now_ns();
    kill(-group, SIGTERM);
  }

 private:
  static constexpr uint64_t kGraceNs = 20'000'000'000;
  static constexpr double kStartSeconds = 1;  // until the program accepts its load

  double since_start() const { return static_cast<double>(now_ns() - start_ns_) / 1e9; }

  void start_load() {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    const char* words[] = {"sh", "-c", settings_.load.c_str(), nullptr};
    int error = posix_spawn(&load_, "/bin/sh", nullptr, &attributes, const_cast<char**>(words), environ);
    posix_spawnattr_destroy(&attributes);
    if (error) failed_ = Status::error(error, "cannot start the shell for --load: {}", strerror(error));
  }

  bool load_has_ended() {
    int status;
    if (waitpid(load_, &status, WNOHANG) != load_) return false;
    load_ = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      failed_ = Status::error(ECHILD, "the command of --load ended with status {}",
                              WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return true;
  }

  const OneRunSettings& settings_;
  const uint64_t start_ns_ = now_ns();
  uint64_t asked_ns_ = 0;
  pid_t load_ = -1;
  Status failed_;
};

Result<std::vector<Samples>> read_all(const std::string& directory) {
  std::vector<Samples> processes;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("sample.")) continue;
    Result<Samples> samples = read_samples(entry.path());
    if (!samples.ok()) return samples.status();
    if (samples->rounds.size() > 1) processes.push_back(std::move(*samples));
  }
  if (processes.empty())
    return Status::error(
        ENODATA, "no process had a heap of 8 MiB for a second, so none could be sampled; give the program more to do");
  return processes;
}

// Near memory is not limited, and the pages of samples are single ones.
// *complete: false where a signal ended it early; the samples are there until then.
Result<std::vector<Samples>> run_sampled(const OneRunSettings& settings, const std::string& path,
                                         const std::vector<std::string>& program, const SignalHold& hold,
                                         bool* complete) {
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  std::string prefix = (*directory)->file("sample");
  setenv("FARSIDE_SAMPLE", prefix.c_str(), 1);
  std::vector<std::string> words = {
      installation->farside(), "run", "--quiet", "--local", "100%", "--huge", "never", "--"};
  words.push_back(path);
  words.insert(words.end(), program.begin() + 1, program.end());
  Ending ending(settings);
  CaptureOptions options{.keep_output = false};
  if (ending.is_wanted()) {
    options.meanwhile = [&](pid_t pid) {
      ending.look(pid);
      usleep(5000);
    };
  }
  Result<CapturedRun> done = run_captured(words, hold, options);
  unsetenv("FARSIDE_SAMPLE");
  *complete = done.ok();
  if (!done.ok() && done.status().code() != EINTR) return done.status();
  if (!ending.load_status().ok()) return ending.load_status();
  if (done.ok() && !done->succeeded() && !ending.was_asked())
    return Status::error(ECHILD, "the program fails: {}", done->outcome());
  return read_all(std::filesystem::path(prefix).parent_path());
}

// ---- The outlook ----

uint64_t largest_heap(const std::vector<Samples>& processes) {
  uint64_t most = 0;
  for (const Samples& samples : processes) most = std::max(most, samples.heap_pages);
  return most;
}

// Near memory also has frames that evictors keep ready, and the page table.
double pages_within(double bytes) {
  double pages = bytes / kPageSize;
  return std::max(1.0, pages - 2 * static_cast<double>(pager::Frames::low_water_of(static_cast<uint64_t>(pages))));
}

std::vector<double> sizes_up_to(double heap) {
  std::vector<double> sizes;
  double step = std::max(heap / kPoints, static_cast<double>(kMiB));
  for (double size = std::max(step, kMinBytes); size < heap; size += step) sizes.push_back(size);
  sizes.push_back(std::max(heap, kMinBytes));
  return sizes;
}

// Processor time that far memory would take, with `prices`.
double lost_us(const Fetches& f, const NearEvents& prices) {
  double random = f.all.value - f.in_streams;
  return random * prices[kFetch] + f.in_streams * prices[kStreamFetch] + f.all.value * f.dirty * prices[kDirtyEviction];
}

NearEvents median_of(const FarsidePrices& prices) {
  NearEvents middle;
  for (size_t e = 0; e < kNearEvents; e++) {
    std::vector<double> us;
    for (const FarsidePrice& one : prices.repetitions) us.push_back(one.us[e]);
    middle[e] = median(us);
  }
  return middle;
}

// What a fetch cost in the run itself, and the others in proportion. On a busy machine a stream may seem to cost
// nothing beyond plain memory; on quiet ones its pages cost a fifth to a half of other fetches.
NearEvents prices_in(const Samples& samples, const NearEvents& alone) {
  constexpr double kMinStreamShare = 1.0 / 8;
  NearEvents us = alone;
  if (alone[kFetch] > 0) {
    for (double& price : us) price *= samples.fault_us / alone[kFetch];
  }
  us[kStreamFetch] = std::max(us[kStreamFetch], kMinStreamShare * samples.fault_us);
  return us;
}

json keep_of(const json& points, double limit, double heap) {
  constexpr double kWorthSaving = 0.9;
  auto size_for = [&](const char* member) { return smallest_with(points, "near_bytes", member, limit); };
  std::optional<double> bytes = size_for("slowdown");
  if (!bytes || *bytes > kWorthSaving * heap) return nullptr;
  return {{"bytes", *bytes}, {"low", *size_for("low")}, {"high", size_for("high").value_or(heap)}};
}

double busiest(const std::vector<Samples>& processes) {
  return std::ranges::max_element(processes, {}, &Samples::processors)->processors;
}

}  // namespace

json outlook_of(const std::vector<Samples>& processes, const FarsidePrices& prices, double slowdown) {
  constexpr double kPriceError = 0.15;
  NearEvents alone = median_of(prices);
  double ran_us = 0, seconds = 0;
  double heap = static_cast<double>(largest_heap(processes) * kPageSize);
  std::vector<double> bytes = sizes_up_to(heap), pages;
  for (double size : bytes) pages.push_back(pages_within(size));
  std::vector<double> fetches(bytes.size()), error(bytes.size()), streams(bytes.size()), lost(bytes.size());
  uint64_t rounds = 0;
  for (const Samples& samples : processes) {
    std::vector<Fetches> of_process = fetches_with(samples, pages);
    for (size_t i = 0; i < bytes.size(); i++) {
      fetches[i] += of_process[i].all.value;
      error[i] = std::hypot(error[i], of_process[i].all.error);
      streams[i] += of_process[i].in_streams;
      lost[i] += lost_us(of_process[i], prices_in(samples, alone));
    }
    ran_us += samples.useful_us * samples.processors;
    rounds += samples.rounds.size();
    seconds = std::max(seconds, samples.seconds);
  }
  json points = json::array();
  for (size_t i = 0; i < bytes.size(); i++) {
    double loss = lost[i] / ran_us, relative = fetches[i] > 0 ? kInterval95 * error[i] / fetches[i] : 0;
    double reach = loss * std::hypot(relative, kPriceError);
    points.push_back({{"near_bytes", static_cast<uint64_t>(bytes[i])},
                      {"fetches", fetches[i]},
                      {"fetches_error", kInterval95 * error[i]},
                      {"in_streams", streams[i]},
                      {"slowdown", 1 + loss},
                      {"low", 1 + std::max(0.0, loss - reach)},
                      {"high", 1 + loss + reach}});
  }
  json made = {{"seconds", seconds},
               {"processes", processes.size()},
               {"rounds", rounds},
               {"heap_bytes", static_cast<uint64_t>(heap)},
               {"rate", processes.front().rate()},
               {"cut_off", std::ranges::any_of(processes, &Samples::is_cut_off)},
               {"points", points},
               {"keep", keep_of(points, 1 + slowdown, heap)}};
  for (size_t e = 0; e < kNearEvents; e++) made["prices_us"][kNearEventNames[e]] = alone[e];
  return made;
}

Result<json> plan_from(const std::vector<Samples>& processes, bool over_network, const OneRunSettings& settings,
                       const cli::RunSettings& run, const SignalHold& hold) {
  PriceSettings which{
      .links = over_network ? Links::kTcp : Links::kShm, .latencies = {}, .threads = busy_threads(busiest(processes))};
  auto prices = measure_prices(run, which, hold);
  if (!prices.ok()) return prices.status();
  json made = outlook_of(processes, prices->front(), settings.slowdown);
  made["command"] = "plan";
  made["machine"] = machine_json();
  made["settings"] = {{"slowdown", settings.slowdown}};
  return made;
}

void check_one_run(const json& measured, json* document) {
  const json& points = (*document)["points"];
  double native = measured["native_s"]["median"], heap = (*document)["heap_bytes"];
  auto predicted = [&](double bytes, const char* member) { return value_at(points, "near_bytes", bytes, member); };
  json checked = json::array();
  for (const json& point : measured["points"]) {
    double bytes = std::max(kMinBytes, point["share"].get<double>() / 100 * heap);
    const json& costs = point["costs"];
    checked.push_back({{"share", point["share"]},
                       {"fetches", costs["fetched_pages"]},
                       {"predicted_fetches", predicted(bytes, "fetches")},
                       {"slowdown", point["seconds"]["median"].get<double>() / native},
                       {"predicted_slowdown", predicted(bytes, "slowdown")}});
  }
  (*document)["checked"] = checked;
}

Result<json> plan_one_run(const OneRunSettings& settings, const cli::RunSettings& run, const std::string& path,
                          const std::vector<std::string>& program) {
  SignalHold hold;
  bool complete = true;
  Result<std::vector<Samples>> processes = run_sampled(settings, path, program, hold, &complete);
  if (!processes.ok())
    return complete ? processes.status() : Status::error(EINTR, "stopped by a signal before the program was sampled");
  Result<json> made = plan_from(*processes, false, settings, run, hold);
  if (!made.ok()) return made;
  (*made)["complete"] = complete;
  (*made)["program"] = program;
  return made;
}

}  // namespace farside::plan
