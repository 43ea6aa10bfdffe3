// Runs of the applications in bench/apps: natively, over far memory, traced and on kernel swap. What `farside bench
// all` and `farside bench apps` have in common; each has its own table of applications and configurations.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>

#include "bench/runner/benchmark.h"
#include "bench/runner/own_runs.h"
#include "launch/run_captured.h"

namespace farside::bench {

using Words = std::vector<std::string>;

struct Application {
  const char* name;
  const char* hinted_policy;         // policy for the run with hints; nullptr: no hints
  const char* figure = "ops_per_s";  // the member of its output that is compared
  Words options = {};                // besides those of all applications
};

struct Configuration {
  const char* name;
  bool hints = false, swap = false, trace = false;
  bool ideal = false;      // an ideal system with as many fetches is put beside it
  Words options = {};      // of `farside run`
  Words app_options = {};  // of the application
};

// Which amount of near memory a share stands for.
enum class NearOf {
  kHeap,   // of the program's own heap
  kNative  // of what the application used natively, so that all configurations have the same; 100: its own heap
};

struct ApplicationRun {
  const Application& app;
  const Configuration& configuration;
  unsigned share;
  std::string transport;
};

inline constexpr const char* kNative = "native";

class ApplicationRuns {
 public:
  ApplicationRuns(const Setup& setup, NearOf near) : setup_(setup), settings_(setup.settings()), near_(near) {}

  Status prepare();
  Status prepare_swap();

  Result<nlohmann::json> round_trip() const;
  Status use_round_trip(double us) { return round_trip_us_ = us, Status(); }

  // Each result, in the order of the measurements: later runs depend on what the application did natively.
  Status use(const Application& app, const std::string& run, bool is_native, const nlohmann::json& result);
  std::string path(const Application& app) const;
  // What was ended once is not run again.
  bool is_left_out(const std::string& run) const { return left_out_.contains(run); }

  Result<nlohmann::json> run_native(const Application& app) const;
  Result<nlohmann::json> run(const ApplicationRun& run) const;

 private:
  Result<nlohmann::json> run_far(const ApplicationRun& run) const;
  Result<nlohmann::json> run_on_swap(const ApplicationRun& run) const;
  Result<nlohmann::json> trace(const ApplicationRun& run) const;
  std::string address(const std::string& transport) const;
  uint64_t share_of_native(const ApplicationRun& run) const;
  std::string local(const ApplicationRun& run) const;
  Words launcher(const char* command, const ApplicationRun& run) const;
  Words program(const Application& app, const Configuration& configuration) const;
  Words with_program(Words words, const ApplicationRun& run) const;
  std::optional<double> native(const Application& app, const char* figure) const;
  Result<nlohmann::json> measured(const Application& app, const Words& words) const;
  nlohmann::json figures_of(const Application& app, const CapturedRun& run, const nlohmann::json& output) const;
  void add_ideal(const Application& app, uint64_t fetches, nlohmann::json* rows) const;
  void warn_of_minimum(const ApplicationRun& run, const nlohmann::json& costs) const;

  const Setup& setup_;
  const Settings& settings_;
  const NearOf near_;
  std::map<std::string, nlohmann::json> natives_;  // the figures of the first native runs
  std::set<std::string> left_out_;
  double round_trip_us_ = 0;
  OwnRuns own_;
  std::unique_ptr<ZramSwap> swap_;
};

// Every application natively, and then in every configuration over every transport at every share of near memory.
struct ApplicationPlan {
  std::span<const Application> apps;
  std::span<const Configuration> configurations;
  std::vector<std::string> transports;
  NearOf near;
};
std::vector<Measurement> application_measurements(const Setup& setup, const ApplicationPlan& plan);

}  // namespace farside::bench
