// Metrics of the programs of a run for Prometheus, from what the launcher's watch sees of them. Served over HTTP, as of
// the request, or written to a file for the node exporter's textfile collector every few seconds.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/exposition.h"
#include "base/sync.h"
#include "cli/metrics_http.h"
#include "cli/statistics/pressure.h"
#include "cli/statistics/run_watch.h"

namespace farside::cli {

class RunMetrics {
 public:
  struct Outputs {
    std::string address;  // HOST:PORT; "" for none
    std::string file;     // "" for none
    bool any() const { return !address.empty() || !file.empty(); }
  };

  // `append` adds the metrics of the run's server. Writes the file once, so that one that cannot be written is reported
  // before the program starts.
  static Result<std::unique_ptr<RunMetrics>> start(const Outputs& outputs, const std::string& program,
                                                   const RunWatch& watch, std::function<void(Exposition*)> append);

  // Called after each look at the processes: replaces the file if its last values are some seconds old.
  void refresh_file();
  // The program has ended: writes the last values.
  void finish(int wait_status);

 private:
  RunMetrics(Outputs outputs, std::string program, const RunWatch& watch, std::function<void(Exposition*)> append)
      : outputs_(std::move(outputs)), program_(std::move(program)), watch_(watch), append_(std::move(append)) {}
  Status write_file(const int* wait_status);
  std::string text(const int* wait_status) const;

  const Outputs outputs_;
  const std::string program_;
  const RunWatch& watch_;
  const std::function<void(Exposition*)> append_;
  mutable Mutex mutex_;
  mutable Pressure pressure_ GUARDED_BY(mutex_);
  unsigned writes_ = 0;
  std::chrono::steady_clock::time_point written_;
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

// The time before the file is written again; `number` is from 0. Short at first, so that a run has values at once.
std::chrono::milliseconds time_before_write(unsigned number);

// The metrics of a run: totals of its processes, ended ones included, and what those that run have now. With
// wait_status, the program has ended.
void append_run_metrics(const nlohmann::json& totals, const std::map<uint64_t, nlohmann::json>& running,
                        const int* wait_status, Exposition* out);
void append_pressure(const Pressure& pressure, Exposition* out);

}  // namespace farside::cli
