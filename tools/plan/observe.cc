#include "tools/plan/observe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "base/size.h"
#include "launch/program_check.h"
#include "launch/run_captured.h"
#include "process/areas.h"
#include "tools/plan/lackey.h"

namespace farside::plan {
namespace {

constexpr uint64_t kMapsEveryNs = 5'000'000;  // minimum interval between reads of the mappings
constexpr size_t kPipeBytes = 1 << 20, kEnoughBytes = 1 << 18;
constexpr int kPollMs = 50;
constexpr timespec kGatherTime = {0, 500'000};
// The addresses at which Valgrind places a program's main stack.
constexpr uint64_t kStackBegin = 0x1ff0000000, kStackEnd = 0x2000000000;

// The addresses of the program that may be far: private anonymous writable memory, except stacks.
class FarRanges {
 public:
  explicit FarRanges(pid_t pid) : pid_(pid) {}

  bool contains(uint64_t address) {
    if (address - last_.begin < last_.end - last_.begin) return last_.far;
    if (address >= kStackBegin && address < kStackEnd) return false;
    if (!find(address)) refresh(address);
    return last_.far;
  }

 private:
  struct Range {
    uint64_t begin = 0, end = 0;
    bool far = false;
  };

  bool find(uint64_t address) {
    auto after = std::ranges::upper_bound(ranges_, address, {}, &Range::begin);
    if (after == ranges_.begin() || address >= std::prev(after)->end) return false;
    last_ = *std::prev(after);
    return true;
  }

  // An address in no mapping was unmapped after the access; it counts as heap, because mapped files are seldom
  // unmapped.
  void refresh(uint64_t address) {
    constexpr uint64_t kPage = 1 << kPageBits;
    if (now_ns() - read_ns_ >= kMapsEveryNs) read();
    if (find(address)) return;
    last_ = {address & ~(kPage - 1), (address & ~(kPage - 1)) + kPage, true};
  }

  void read() {
    read_ns_ = now_ns();
    Result<std::vector<process::Area>> areas = process::read_areas(pid_);
    if (!areas.ok() || areas->empty()) return;  // the process is exiting
    ranges_.clear();
    const process::Area* before = nullptr;
    for (const process::Area& area : *areas) {
      bool far = !area.shared && area.writable && area.backing == process::Backing::kZeros &&
                 !(before && is_guard(*before) && before->end == area.begin);
      ranges_.push_back({area.begin, area.end, far});
      before = &area;
    }
  }

  // True for the guard page below the stack of a thread.
  static bool is_guard(const process::Area& area) {
    return !area.writable && area.inode == 0 && area.name.empty() && area.bytes() == 1 << kPageBits;
  }

  pid_t pid_;
  std::vector<Range> ranges_;
  Range last_;
  uint64_t read_ns_ = 0;
};

// Reads the pipe from valgrind and passes the accesses on to the observation.
class Intake {
 public:
  Intake(int fd, double max_seconds, bool quiet, Observed* observed, PageTraceWriter* trace)
      : fd_(fd), max_seconds_(max_seconds), progress_(!quiet), observed_(observed), trace_(trace) {}
  ~Intake() {
    if (progress_ && terminal_) fputs("\r\033[K", stderr);
  }

  // Processes the available data, or waits for at most 50 ms.
  void step(pid_t pid) {
    if (!ranges_) ranges_.emplace(pid);
    pollfd ready = {fd_, POLLIN, 0};
    if (poll(&ready, 1, kPollMs) <= 0) return;
    // Reading every line at once would wake both processes for each: wait until more has accumulated.
    if (take() < kEnoughBytes) nanosleep(&kGatherTime, nullptr);
    show();
  }

  // Processes the rest of the pipe at the end.
  void drain() {
    while (ranges_ && take() > 0) {}
    if (ranges_) reader_.finish([&](auto... access) { count_access(access...); });
    observed_->instructions = reader_.instructions();
  }

 private:
  size_t take() {
    ssize_t n = read(fd_, buffer_.data(), buffer_.size());
    if (n <= 0) return 0;
    reader_.read({buffer_.data(), static_cast<size_t>(n)}, [&](auto... access) { count_access(access...); });
    return static_cast<size_t>(n);
  }

  void count_access(uint64_t address, unsigned bytes, bool write) {
    if (!ranges_->contains(address)) return observed_->observation.access_to_near();
    observed_->observation.access(address, bytes, write);
    if (trace_) trace_->access(address >> kPageBits);
  }

  void show() {
    uint64_t now = now_ns();
    if (!progress_ || now < next_ns_) return;
    next_ns_ = now + (terminal_ ? 1 : 10) * 1'000'000'000ull;
    const Observation& seen = observed_->observation;
    std::string limit = max_seconds_ > 0 ? fmt::format(" of at most {:g}", max_seconds_) : "";
    fmt::print(stderr, "{}observed for {:.0f} s{}: {:.1f} million accesses, {} touched{}", terminal_ ? "\r\033[K" : "",
               static_cast<double>(now - start_ns_) / 1e9, limit, seen.accesses() / 1e6,
               format_size(static_cast<uint64_t>(seen.heap_bytes())), terminal_ ? "" : "\n");
    fflush(stderr);
  }

  int fd_;
  double max_seconds_;
  bool progress_, terminal_ = isatty(STDERR_FILENO) != 0;
  Observed* observed_;
  PageTraceWriter* trace_;
  std::optional<FarRanges> ranges_;
  LackeyReader reader_;
  std::vector<char> buffer_ = std::vector<char>(kPipeBytes);
  uint64_t start_ns_ = now_ns(), next_ns_ = start_ns_ + 1'000'000'000;
};

// A pipe that is closed by the destructor.
struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    close_writer();
    if (ends[0] >= 0) close(ends[0]);
  }
  void close_writer() {
    if (ends[1] >= 0) close(ends[1]);
    ends[1] = -1;
  }
  // The read end is not inherited and does not block.
  Status open() {
    if (pipe(ends) != 0) return Status::error(errno, "cannot create a pipe: {}", strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);  // a smaller pipe is slower: more context switches
    return {};
  }
};

}  // namespace

Result<std::string> find_valgrind() {
  const char* path = getenv("PATH");
  Result<std::string> found = find_program("valgrind", path ? path : "");
  if (found.ok()) return found;
  return Status::error(ENOENT,
                       "valgrind is not installed, and --blocks observes programs with it; on Debian: "
                       "apt install valgrind, or leave --blocks out");
}

Status observe(const std::vector<std::string>& words, const SignalHold& hold, double max_seconds, bool quiet,
               Observed* observed, PageTraceWriter* trace) {
  Result<std::string> valgrind = find_valgrind();
  if (!valgrind.ok()) return valgrind.status();
  Pipe pipe;
  Status opened = pipe.open();
  if (!opened.ok()) return opened;
  std::vector<std::string> line = {*valgrind, "--tool=lackey", "--trace-mem=yes", "--vgdb=no",
                                   fmt::format("--log-fd={}", pipe.ends[1])};
  line.insert(line.end(), words.begin(), words.end());
  Intake intake(pipe.ends[0], max_seconds, quiet, observed, trace);
  Result<CapturedRun> run = run_captured(
      line, hold, {.seconds = max_seconds, .keep_output = false, .meanwhile = [&](pid_t pid) { intake.step(pid); }});
  pipe.close_writer();
  if (!run.ok()) return run.status();
  intake.drain();
  observed->seconds = run->seconds;
  observed->cut_off = run->cut_off;
  if (!run->cut_off && !run->succeeded()) {
    return Status::error(ECHILD, "the program fails under valgrind: {}; check that valgrind can run it",
                         run->outcome());
  }
  return {};
}

Result<PageTraceHeader> record_pages(const std::vector<std::string>& words, const std::string& file, bool quiet) {
  PageTraceWriter trace;
  Status status = trace.open(file);
  SignalHold hold;
  Observed observed;
  if (status.ok()) status = observe(words, hold, 0, quiet, &observed, &trace);
  if (status.ok()) status = trace.close();
  if (!status.ok()) return status;
  return trace.header();
}

}  // namespace farside::plan
