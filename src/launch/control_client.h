// The client side of the control page (abi/control.h), by which `farside ctl` and others find running processes, read
// their statistics, change their budget and have their pages sampled.
#pragma once
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "abi/control.h"
#include "base/size.h"
#include "base/status.h"

namespace farside {

class ControlledProcess {
 public:
  // nullptr: no such process, it does not run under Farside, or this user may not access it.
  static std::unique_ptr<ControlledProcess> find(pid_t pid);
  // The process itself or, if it does not run under Farside, its descendants that do: `pid` may be a launcher or a
  // shell. pid 0: all processes of this user.
  static std::vector<std::unique_ptr<ControlledProcess>> find_all(pid_t pid);
  // Why find_all() found none.
  static Status not_found(pid_t pid);
  ~ControlledProcess();
  ControlledProcess(const ControlledProcess&) = delete;
  ControlledProcess& operator=(const ControlledProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool has_ended() const;
  // A report, within about a tenth of a second. ETIMEDOUT after five seconds, as when the process is stopped. EAGAIN:
  // it is so small that nothing of it can be far, and has no thread that answers.
  Result<nlohmann::json> ask();
  // Sets its budget; the report after it.
  Result<nlohmann::json> set_local(const SizeOrShare& local);
  // Without waiting: it has this budget when it takes requests. False: another process is about to set it.
  bool set_local_later(const SizeOrShare& local);

  // It writes samples of its pages until this time, at most ControlPage::kMaxSampleNs from now; 0: no more.
  void sample_until(uint64_t ns) { page_->sample_until_ns.store(ns); }
  // The descriptor of what it has written; -1: it does not sample, or this user may not access it. The caller closes
  // it.
  int open_samples() const;

  // Without waiting: requests a report and returns the request's number; the report that the process wrote last, none
  // while it may be writing one. The page outlives the process.
  uint32_t request();
  std::optional<nlohmann::json> latest() const;

  // Reports of all of them. Waits as long as for one.
  static std::vector<Result<nlohmann::json>> ask_all(const std::vector<std::unique_ptr<ControlledProcess>>& processes);

 private:
  static constexpr uint64_t kReplyTimeoutNs = 5'000'000'000;

  Status lock_in_time();
  bool lock();  // false: another process has it, or this one has ended
  void unlock();
  bool has_answered(uint32_t asked) const;
  std::optional<Result<nlohmann::json>> answer_to(uint32_t asked, uint64_t since_ns) const;  // none so far
  Result<nlohmann::json> wait_for_answer(uint32_t asked) const;
  Status no_answer() const;
  std::optional<std::string> read_report() const;
  Result<nlohmann::json> parse(const std::string& report) const;
  ControlledProcess(pid_t pid, ControlPage* page) : pid_(pid), page_(page) {}
  pid_t pid_;
  int fd_ = -1;  // locked; -1: not
  ControlPage* page_;
};

// The limit of near memory that `farside ctl` sets for a whole run, in the run's launcher.
class RunLimit {
 public:
  RunLimit();  // without a descriptor, none can be set
  ~RunLimit();
  RunLimit(const RunLimit&) = delete;
  RunLimit& operator=(const RunLimit&) = delete;

  // Another one each time that a limit was set; 0: none was.
  uint32_t number() const { return page_ ? page_->asked.load(std::memory_order_acquire) : 0; }
  SizeOrShare value() const { return page_->local(); }

  // By farside ctl, for the launcher of this number and those that descend from it.
  static void set(pid_t pid, const SizeOrShare& local);

 private:
  int fd_;
  ControlPage* page_;
};

}  // namespace farside
