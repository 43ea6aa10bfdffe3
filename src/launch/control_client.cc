#include "launch/control_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/os.h"

namespace farside {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPollNs = 1'000'000;

// Opens the control page of the process through /proc/PID/fd; -1: it has none, or this user may not access it.
int open_control(pid_t pid) {
  std::string wanted = fmt::format("/memfd:{} (deleted)", kControlName);
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(at->path(), gone) == wanted && !gone) return open(at->path().c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

// Another program may have a memfd of the same name: checks it before use, and that it cannot shrink.
ControlPage* map_control(int fd) {
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || lseek(fd, 0, SEEK_END) != ControlPage::kBytes) return nullptr;
  void* memory = mmap(nullptr, ControlPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* page = static_cast<ControlPage*>(memory);
  if (page->magic == ControlPage::kMagic) return page;
  munmap(memory, ControlPage::kBytes);
  return nullptr;
}

// "S 4711 ...": state and parent of a process. "" if there is none.
std::string state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  size_t name_end = line.rfind(')');  // the name may contain any character
  return name_end == line.npos || name_end + 4 >= line.size() ? "" : line.substr(name_end + 2);
}

// Also one whose parent has not waited for it.
bool is_ended(pid_t pid) {
  std::string state = state_of(pid);
  return state.empty() || state[0] == 'Z' || state[0] == 'X';
}

pid_t parent_of(pid_t pid) {
  std::string state = state_of(pid);
  pid_t parent = 0;
  if (!state.empty()) std::from_chars(state.data() + 2, state.data() + state.size(), parent);
  return parent;
}

bool descends_from(pid_t pid, pid_t ancestor) {
  for (pid_t at = parent_of(pid); at > 0; at = parent_of(at)) {
    if (at == ancestor) return true;
  }
  return false;
}

std::vector<pid_t> all_pids() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr == name.data() + name.size())
      pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

bool is_own(pid_t pid) {
  struct stat info;
  return stat(fmt::format("/proc/{}", pid).c_str(), &info) == 0 && info.st_uid == geteuid();
}

// Any process may have a page that looks like a control page: its report is a flat object of printable text and of
// numbers that are not negative.
bool is_plausible(const nlohmann::json& report) {
  return std::all_of(report.begin(), report.end(), [](const nlohmann::json& value) {
    if (value.is_boolean() || value.is_number_unsigned()) return true;
    if (value.is_number()) return value.get<double>() >= 0;
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  });
}

}  // namespace

std::unique_ptr<ControlledProcess> ControlledProcess::find(pid_t pid) {
  int fd = open_control(pid);
  if (fd < 0) return nullptr;
  ControlPage* page = map_control(fd);
  if (page) return std::unique_ptr<ControlledProcess>(new ControlledProcess(pid, fd, page));
  close(fd);
  return nullptr;
}

std::vector<std::unique_ptr<ControlledProcess>> ControlledProcess::find_all(pid_t pid) {
  std::vector<std::unique_ptr<ControlledProcess>> found;
  auto add = [&](pid_t candidate) {
    if (auto process = find(candidate)) found.push_back(std::move(process));
  };
  if (pid > 0) add(pid);
  if (!found.empty()) return found;
  for (pid_t candidate : all_pids()) {
    if (pid == 0 ? is_own(candidate) : descends_from(candidate, pid)) add(candidate);
  }
  return found;
}

ControlledProcess::~ControlledProcess() {
  munmap(page_, ControlPage::kBytes);
  close(fd_);
}

bool ControlledProcess::has_ended() const { return is_ended(pid_); }

// The kernel unlocks it if this process dies.
bool ControlledProcess::lock() { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }

void ControlledProcess::unlock() { flock(fd_, LOCK_UN); }

bool ControlledProcess::has_answered(uint32_t asked) const {
  return page_->answered.load(std::memory_order_acquire) == asked;
}

uint32_t ControlledProcess::send(const SizeOrShare& local) {
  page_->local_bytes = local.bytes;
  page_->local_share = local.share;
  return page_->asked.fetch_add(1, std::memory_order_acq_rel) + 1;
}

Result<nlohmann::json> ControlledProcess::parse_report() const {
  std::string report(page_->report, strnlen(page_->report, sizeof page_->report));
  auto parsed = nlohmann::json::parse(report, nullptr, false);
  if (parsed.is_object() && is_plausible(parsed)) return parsed;
  return Status::error(EPROTO, "process {} replied in a format that this version of farside does not support", pid_);
}

Result<nlohmann::json> ControlledProcess::wait_for_answer(uint32_t asked, uint64_t deadline_ns) {
  while (!has_answered(asked) && now_ns() < deadline_ns && !has_ended()) os::nanosleep_ns(kPollNs);
  if (has_answered(asked)) return parse_report();
  if (has_ended()) return Status::error(ESRCH, "process {} has ended", pid_);
  return Status::error(ETIMEDOUT, "process {} does not reply; it may be stopped or exiting", pid_);
}

Result<nlohmann::json> ControlledProcess::ask(const SizeOrShare& local) {
  uint64_t deadline = now_ns() + kReplyTimeoutNs;
  while (!lock()) {
    if (now_ns() > deadline)
      return Status::error(ETIMEDOUT, "the control page of process {} is in use by another process; try again", pid_);
    os::nanosleep_ns(kPollNs);
  }
  auto report = wait_for_answer(send(local), deadline);
  unlock();
  return report;
}

void ControlledProcess::request() {
  if (!lock()) return;  // the other one requests a report
  send({});
  unlock();
}

std::optional<nlohmann::json> ControlledProcess::latest() const {
  bool may_be_writing = !has_answered(page_->asked.load(std::memory_order_relaxed)) && !has_ended();
  if (may_be_writing) return std::nullopt;
  auto report = parse_report();
  return report.ok() ? std::optional(std::move(*report)) : std::nullopt;
}

std::vector<Result<nlohmann::json>> ControlledProcess::ask_all(
    const std::vector<std::unique_ptr<ControlledProcess>>& processes) {
  std::vector<std::optional<uint32_t>> asked;  // none: locked by another process
  asked.reserve(processes.size());
  for (const auto& process : processes)
    asked.push_back(process->lock() ? std::optional(process->send({})) : std::nullopt);
  uint64_t deadline = now_ns() + kReplyTimeoutNs;
  std::vector<Result<nlohmann::json>> reports;
  reports.reserve(processes.size());
  for (size_t i = 0; i < processes.size(); i++) {
    ControlledProcess& process = *processes[i];
    reports.push_back(asked[i] ? process.wait_for_answer(*asked[i], deadline) : process.ask({}));
    if (asked[i]) process.unlock();
  }
  return reports;
}

}  // namespace farside
