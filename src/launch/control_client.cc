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

#include "abi/sample_file.h"
#include "base/clock.h"
#include "base/os.h"

namespace farside {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPollNs = 1'000'000;
constexpr uint64_t kStartNs = 200'000'000;  // that a process may take to start its evictors

// Opens the process's memfd of that name through /proc/PID/fd; -1: it has none, or this user may not access it.
int open_memfd(pid_t pid, const char* name) {
  std::string wanted = fmt::format("/memfd:{} (deleted)", name);
  std::error_code error;
  for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(at->path(), gone) == wanted && !gone) return open(at->path().c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

ControlPage* map_page(int fd) {
  void* memory = mmap(nullptr, ControlPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<ControlPage*>(memory);
}

// Another program may have a memfd of the same name: checks it before use, and that it cannot shrink.
ControlPage* map_control(int fd) {
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || lseek(fd, 0, SEEK_END) != ControlPage::kBytes) return nullptr;
  ControlPage* page = map_page(fd);
  if (!page || page->magic == ControlPage::kMagic) return page;
  munmap(page, ControlPage::kBytes);
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
  int fd = open_memfd(pid, kControlName);
  if (fd < 0) return nullptr;
  ControlPage* page = map_control(fd);
  close(fd);
  return page ? std::unique_ptr<ControlledProcess>(new ControlledProcess(pid, page)) : nullptr;
}

RunLimit::RunLimit() : fd_(os::sealed_memfd(kRunControlName, ControlPage::kBytes)) {
  page_ = fd_ < 0 ? nullptr : map_page(fd_);
  if (page_) page_->magic = ControlPage::kMagic;
}

RunLimit::~RunLimit() {
  if (page_) munmap(page_, ControlPage::kBytes);
  if (fd_ >= 0) close(fd_);
}

void RunLimit::set(pid_t pid, const SizeOrShare& local) {
  for (pid_t candidate : all_pids()) {
    if (candidate != pid && !descends_from(candidate, pid)) continue;
    int fd = open_memfd(candidate, kRunControlName);
    ControlPage* page = fd < 0 ? nullptr : map_control(fd);
    if (page) page->request(local);
    if (page) munmap(page, ControlPage::kBytes);
    if (fd >= 0) close(fd);
  }
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

Status ControlledProcess::not_found(pid_t pid) {
  if (state_of(pid).empty())
    return Status::error(ESRCH, "there is no process {}; farside ctl lists those that run under Farside", pid);
  if (access(fmt::format("/proc/{}/fd", pid).c_str(), R_OK) != 0)
    return Status::error(EPERM, "process {} belongs to another user; run this command as that user or as root", pid);
  return Status::error(ESRCH, "process {} does not run under Farside; farside ctl lists those that do", pid);
}

int ControlledProcess::open_samples() const { return open_memfd(pid_, kSampleFileName); }

ControlledProcess::~ControlledProcess() {
  munmap(page_, ControlPage::kBytes);
  if (fd_ >= 0) close(fd_);
}

bool ControlledProcess::has_ended() const { return is_ended(pid_); }

// The descriptor is open no longer than the lock is held: a process that has it would itself be found as one that runs
// under Farside. The kernel unlocks it if this process dies.
bool ControlledProcess::lock() {
  fd_ = open_memfd(pid_, kControlName);
  if (fd_ < 0 || flock(fd_, LOCK_EX | LOCK_NB) == 0) return fd_ >= 0;
  unlock();
  return false;
}

void ControlledProcess::unlock() {
  close(fd_);
  fd_ = -1;
}

bool ControlledProcess::has_answered(uint32_t asked) const {
  return static_cast<int32_t>(page_->answered.load(std::memory_order_acquire) - asked) >= 0;
}

// none: a request is pending, so that the process may be writing.
std::optional<std::string> ControlledProcess::read_report() const {
  uint32_t asked = page_->asked.load(std::memory_order_acquire);
  if (page_->answered.load(std::memory_order_acquire) != asked && !has_ended()) return std::nullopt;
  std::string report(page_->report, strnlen(page_->report, sizeof page_->report));
  bool is_whole = page_->asked.load(std::memory_order_acquire) == asked || has_ended();
  return is_whole ? std::optional(std::move(report)) : std::nullopt;
}

Result<nlohmann::json> ControlledProcess::parse(const std::string& report) const {
  auto parsed = nlohmann::json::parse(report, nullptr, false);
  if (parsed.is_object() && is_plausible(parsed)) return parsed;
  return Status::error(EPROTO, "process {} replied in a format that this version of farside does not support", pid_);
}

std::optional<Result<nlohmann::json>> ControlledProcess::answer_to(uint32_t asked, uint64_t since_ns) const {
  auto report = has_answered(asked) ? read_report() : std::nullopt;
  if (report) return parse(*report);
  if (has_ended()) return Status::error(ESRCH, "process {} has ended", pid_);
  if (page_->served.load() == 0 && now_ns() - since_ns > kStartNs)
    return Status::error(EAGAIN, "process {} uses little far memory so far, all of it near; it takes no requests yet",
                         pid_);
  return std::nullopt;
}

Result<nlohmann::json> ControlledProcess::wait_for_answer(uint32_t asked) const {
  for (uint64_t since = now_ns(); now_ns() < since + kReplyTimeoutNs; os::nanosleep_ns(kPollNs)) {
    if (auto answer = answer_to(asked, since)) return *answer;
  }
  return no_answer();
}

Status ControlledProcess::no_answer() const {
  return Status::error(ETIMEDOUT, "process {} does not reply; it may be stopped or exiting", pid_);
}

Result<nlohmann::json> ControlledProcess::ask() { return wait_for_answer(request()); }

Status ControlledProcess::lock_in_time() {
  uint64_t deadline = now_ns() + kReplyTimeoutNs;
  while (!lock()) {
    if (has_ended()) return Status::error(ESRCH, "process {} has ended", pid_);
    if (now_ns() > deadline)
      return Status::error(ETIMEDOUT, "the control page of process {} is in use by another process; try again", pid_);
    os::nanosleep_ns(kPollNs);
  }
  return {};
}

Result<nlohmann::json> ControlledProcess::set_local(const SizeOrShare& local) {
  if (Status locked = lock_in_time(); !locked.ok()) return locked;
  auto report = wait_for_answer(page_->request(local));
  page_->set_local({});  // where it does not reply
  unlock();
  return report;
}

bool ControlledProcess::set_local_later(const SizeOrShare& local) {
  if (!lock()) return false;
  page_->request(local);
  unlock();
  return true;
}

uint32_t ControlledProcess::request() { return page_->asked.fetch_add(1, std::memory_order_acq_rel) + 1; }

std::optional<nlohmann::json> ControlledProcess::latest() const {
  auto text = read_report();
  if (!text) return std::nullopt;
  auto report = parse(*text);
  return report.ok() ? std::optional(std::move(*report)) : std::nullopt;
}

std::vector<Result<nlohmann::json>> ControlledProcess::ask_all(
    const std::vector<std::unique_ptr<ControlledProcess>>& processes) {
  std::vector<uint32_t> asked;
  std::vector<Result<nlohmann::json>> reports;
  asked.reserve(processes.size());
  reports.reserve(processes.size());
  for (const auto& process : processes) {
    asked.push_back(process->request());
    reports.emplace_back(process->no_answer());
  }
  size_t missing = processes.size();
  uint64_t since = now_ns();
  for (; missing > 0 && now_ns() < since + kReplyTimeoutNs; os::nanosleep_ns(kPollNs)) {
    for (size_t i = 0; i < processes.size(); i++) {
      if (reports[i].status().code() != ETIMEDOUT) continue;
      auto answer = processes[i]->answer_to(asked[i], since);
      if (!answer) continue;
      reports[i] = std::move(*answer);
      missing--;
    }
  }
  return reports;
}

}  // namespace farside
