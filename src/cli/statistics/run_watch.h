// Looks at the processes of a run while it lasts: each begins with a line in the run's report file, and is asked from
// then on through its control page. So the launcher has figures of processes that cannot report their end (SIGKILL, a
// crash, lost far memory), and those of metrics, at most a few tenths of a second old.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "launch/control_client.h"

namespace farside::cli {

class RunWatch {
 public:
  explicit RunWatch(const std::string& report_file) : reports_(fopen(report_file.c_str(), "re")) {}
  ~RunWatch();
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // on_look is called after each look, by the watch's thread.
  void start(std::function<void()> on_look);
  // A last look. No other follows.
  void stop();

  using Reports = std::map<uint64_t, nlohmann::json>;  // by process ID
  Reports running() const;                             // what processes have now
  std::vector<nlohmann::json> ended() const;           // reports of those that have ended
  // Those that ended without a report: what they had when they were last seen.
  std::vector<nlohmann::json> gone() const;

 private:
  struct Watched {
    std::unique_ptr<ControlledProcess> control;  // null until it is found
    unsigned attempts = 0;
    uint32_t limit = 0;  // the number of the run's limit that it has
  };

  void run();
  void end_thread();
  bool is_stopped_within(std::chrono::milliseconds time);
  void look();
  void find_unannounced();
  void read_reports() REQUIRES(mutex_);
  void read_line(const std::string& line) REQUIRES(mutex_);
  void note_limit() REQUIRES(mutex_);
  void ask(uint64_t pid, Watched* process) REQUIRES(mutex_);
  void forget_ended() REQUIRES(mutex_);

  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  std::unique_ptr<FILE, Close> reports_;  // closed by exec; null if it cannot be read
  std::function<void()> on_look_;
  unsigned looks_ = 0;

  const RunLimit run_limit_;

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Watched> watched_ GUARDED_BY(mutex_);
  uint32_t limit_ GUARDED_BY(mutex_) = 0;  // the number of the run's limit
  Reports running_ GUARDED_BY(mutex_);     // of those that have replied
  std::vector<nlohmann::json> ended_ GUARDED_BY(mutex_);
  Reports gone_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace farside::cli
