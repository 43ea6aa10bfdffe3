// Metrics of the programs of a run for Prometheus: read from their control pages every few seconds, and from the report
// that they write when they end. Served over HTTP, or written to a file for the node exporter's textfile collector. All
// of it happens in the launcher.
#pragma once
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/exposition.h"
#include "base/sync.h"
#include "cli/metrics_http.h"

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
                                                   const std::string& report_file,
                                                   std::function<void(Exposition*)> append);
  ~RunMetrics();
  RunMetrics(const RunMetrics&) = delete;
  RunMetrics& operator=(const RunMetrics&) = delete;

  // The program has ended: writes the last values.
  void finish(int wait_status);

 private:
  RunMetrics(Outputs outputs, std::string program, const std::string& report_file,
             std::function<void(Exposition*)> append);
  void run();
  bool is_stopped_within(std::chrono::milliseconds time);
  void stop();
  Status publish(const int* wait_status);
  void ask_processes();
  void read_reports();
  nlohmann::json totals() const;
  std::string text();

  const Outputs outputs_;
  const std::string program_;
  const std::function<void(Exposition*)> append_;
  std::ifstream reports_;
  std::map<uint64_t, nlohmann::json> running_;  // by process ID: the last answer
  std::vector<nlohmann::json> gone_;            // last answers of processes that may have ended without a report
  nlohmann::json ended_;                        // the totals of processes that have ended

  Mutex mutex_;
  std::condition_variable_any changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::string text_ GUARDED_BY(mutex_);
  std::unique_ptr<MetricsEndpoint> endpoint_;
  std::thread thread_;
};

// The time before a look at the processes; `number` is from 0. Short at first, so that a run has values at once.
std::chrono::milliseconds time_before_look(unsigned number);

// The metrics of a run: totals of its processes, ended ones included, and what those that run have now. With
// wait_status, the program has ended.
void append_run_metrics(const nlohmann::json& totals, const std::map<uint64_t, nlohmann::json>& running,
                        const int* wait_status, Exposition* out);

}  // namespace farside::cli
