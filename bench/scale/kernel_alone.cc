#include "bench/scale/kernel_alone.h"

#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "measure/statistics.h"

namespace farside::bench::scale {
namespace {

using nlohmann::json;

constexpr unsigned kPagesOfWorker = 2048;  // operations in a round
constexpr uint64_t kPartBytes = kPagesOfWorker * kPageSize;
constexpr size_t kStackBytes = 64 * kKiB;
constexpr uint64_t kUffdModes = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;

// All workers wait here for the last one. Processes that share the memory may use it.
class Meeting {
 public:
  explicit Meeting(unsigned count) : count_(count) {}
  void wait() {
    unsigned round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.fetch_add(1, std::memory_order_release);
      return;
    }
    for (unsigned spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
      if (spins < kSpins) cpu_relax();
      else os::sched_yield();
    }
  }

 private:
  static constexpr unsigned kSpins = 10000;
  const unsigned count_;
  std::atomic<unsigned> arrived_{0}, round_{0};
};

// Pages under test, a part for each worker.
struct Parts {
  std::byte* base = nullptr;
  std::vector<int> uffds;  // of each part, or one of all
  std::byte* source = nullptr;
  bool copies = false;  // the handler maps the page
};
Parts g_parts;  // handlers have no argument
uint64_t g_readable = 0;

int map_page(std::byte* page) {
  size_t part = static_cast<size_t>(page - g_parts.base) / kPartBytes;
  int uffd = g_parts.uffds[part % g_parts.uffds.size()];
  long done = os::uffd_copy(uffd, page, g_parts.source, kPageSize, UFFDIO_COPY_MODE_WP);
  return done < 0 ? static_cast<int>(done) : 0;
}

#if defined(__x86_64__)
// Reads a word whose address is in RDI, where the handler can replace it.
inline void read_word(const void* address) { asm volatile("movq (%%rdi), %%rax" : "+D"(address) : : "rax", "memory"); }
void redirect(void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RDI] = reinterpret_cast<greg_t>(&g_readable);
}
#else
#error "the handler replaces a register of x86-64"
#endif

// Runs under a fault.
void on_fault(int, siginfo_t* info, void* context) {
  if (!g_parts.copies) return redirect(context);
  auto* page = reinterpret_cast<std::byte*>(align_down(reinterpret_cast<uint64_t>(info->si_addr), kPageSize));
  if (map_page(page) != 0) die("UFFDIO_COPY failed in a measurement");
}

// SA_NODEFER as in the pager: the mask stays as it is.
void catch_faults() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

Status register_range(std::byte* at, uint64_t bytes, int* uffd) {
  uint64_t features = 0;
  *uffd = os::open_userfaultfd(UFFD_FEATURE_SIGBUS | UFFD_FEATURE_PAGEFAULT_FLAG_WP, &features);
  int error = *uffd < 0 ? *uffd : os::uffd_register(*uffd, at, bytes, kUffdModes);
  return error < 0 ? Status::error(-error, "userfaultfd: {}", strerror(-error)) : Status();
}

// The kernel does not merge the mappings of different userfaultfds.
Status make_parts(unsigned workers, bool separate) {
  void* memory =
      mmap(nullptr, workers * kPartBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Status::error(errno, "no memory: {}", strerror(errno));
  g_parts.base = static_cast<std::byte*>(memory);
  g_parts.source = static_cast<std::byte*>(os::map_near(kPageSize));
  memset(g_parts.source, 1, kPageSize);
  uint64_t count = separate ? workers : 1, bytes = workers * kPartBytes / count;
  for (unsigned i = 0; i < count; i++) {
    Status done = register_range(g_parts.base + i * bytes, bytes, &g_parts.uffds.emplace_back());
    if (!done.ok()) return done;
  }
  return {};
}

void change_mask() {
  os::SignalSet before = 0, blocked = os::signal_bit(SIGUSR1);
  os::sigprocmask(SIG_BLOCK, &blocked, &before);
  os::sigprocmask(SIG_SETMASK, &before, nullptr);
}

// One round of a worker: kPagesOfWorker operations. Runs in processes without thread storage of their own: only system
// calls by base/os.h.
void operate(Operation operation, unsigned worker) {
  constexpr uint64_t kNoMapping = uint64_t{0xffff8000} << 32;  // the kernel's half
  std::byte* part = g_parts.base + worker * kPartBytes;
  for (unsigned i = 0; i < kPagesOfWorker; i++) {
    if (operation == Operation::kSignal) read_word(reinterpret_cast<void*>(kNoMapping));
    else if (operation == Operation::kMask) change_mask();
    else if (operation == Operation::kCopy) map_page(part + i * kPageSize);
    else read_word(part + i * kPageSize);
  }
}

bool maps_pages(Operation operation) { return operation == Operation::kCopy || operation == Operation::kResolve; }

class Race {
 public:
  Race(const AloneCase& alone, unsigned workers, double seconds)
      : alone_(alone), workers_(workers), limit_ns_(static_cast<uint64_t>(seconds * 1e9)), meeting_(workers) {}

  Status run() { return alone_.workers == Workers::kThreads ? run_threads() : run_processes(); }

  json figures() const {
    double per_s = static_cast<double>(rounds_) * workers_ * kPagesOfWorker * 1e9 / static_cast<double>(spent_ns_);
    return {{"per_s", per_s}, {"us", workers_ * 1e6 / per_s}};
  }

 private:
  // Rounds begin and end together. The first one, in which page tables are made, does not count.
  void work(unsigned worker) {
    for (bool first = true; !stop_; first = false) {
      meeting_.wait();
      uint64_t start = now_ns();
      operate(alone_.operation, worker);
      meeting_.wait();
      if (worker == 0 && !first) count(now_ns() - start);
      if (maps_pages(alone_.operation)) os::madvise(g_parts.base + worker * kPartBytes, kPartBytes, MADV_DONTNEED);
      meeting_.wait();
    }
  }

  void count(uint64_t ns) {
    rounds_++;
    spent_ns_ += ns;
    stop_ = spent_ns_ >= limit_ns_;
  }

  Status run_threads() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < workers_; i++) threads.emplace_back([this, i] { work(i); });
    for (std::thread& thread : threads) thread.join();
    return {};
  }

  struct Start {
    Race* race;
    unsigned worker;
  };
  static int run_process(void* argument) {
    auto* start = static_cast<Start*>(argument);
    os::call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    start->race->work(start->worker);
    return 0;
  }

  Status run_processes() {
    std::vector<Start> starts;
    for (unsigned i = 0; i < workers_; i++) starts.push_back({this, i});
    std::vector<pid_t> children;
    for (Start& start : starts) {
      auto* stack = static_cast<std::byte*>(os::map_near(kStackBytes));
      children.push_back(clone(run_process, stack + kStackBytes, CLONE_VM | SIGCHLD, &start));
      if (children.back() < 0) die("cannot start a process for a measurement: {}", strerror(errno));
    }
    for (pid_t child : children) waitpid(child, nullptr, 0);
    return {};
  }

  const AloneCase alone_;
  const unsigned workers_;
  const uint64_t limit_ns_;
  Meeting meeting_;
  std::atomic<bool> stop_{false};
  uint64_t rounds_ = 0, spent_ns_ = 0;
};

std::byte* map_pages(unsigned pages) {
  void* memory = mmap(nullptr, pages * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("no memory for a measurement");
  madvise(memory, pages * kPageSize, MADV_NOHUGEPAGE);
  return static_cast<std::byte*>(memory);
}

// us of each call, until the time is over.
std::vector<double> drop_pages(unsigned pages, uint64_t until_ns) {
  std::byte* memory = map_pages(pages);
  double per_us = ticks_per_us();
  std::vector<double> times;
  while (now_ns() < until_ns) {
    for (unsigned i = 0; i < pages; i++) *reinterpret_cast<volatile char*>(memory + i * kPageSize) = 1;
    uint64_t start = ticks();
    madvise(memory, pages * kPageSize, MADV_DONTNEED);
    times.push_back(static_cast<double>(ticks() - start) / per_us);
  }
  munmap(memory, pages * kPageSize);
  return times;
}

}  // namespace

Result<json> measure_alone(const AloneCase& alone, unsigned workers, double seconds) {
  g_parts = {};
  g_parts.copies = alone.operation == Operation::kResolve;
  if (Status made = make_parts(workers, alone.separate); !made.ok()) return made;
  catch_faults();
  Race race(alone, workers, seconds);
  Status done = race.run();
  for (int uffd : g_parts.uffds) os::close(uffd);
  munmap(g_parts.base, workers * kPartBytes);
  return done.ok() ? Result<json>(race.figures()) : done;
}

Result<json> measure_drops(const DropCase& drop, unsigned threads, double seconds) {
  unsigned droppers = std::min(drop.at_once, threads);
  std::atomic<bool> stop{false};
  std::vector<std::vector<double>> times(droppers);
  std::vector<std::thread> dropping, computing;
  uint64_t until = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  for (unsigned i = droppers; i < threads; i++)
    computing.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) cpu_relax();
    });
  for (unsigned i = 0; i < droppers; i++) dropping.emplace_back([&, i] { times[i] = drop_pages(drop.pages, until); });
  for (std::thread& thread : dropping) thread.join();
  stop = true;
  for (std::thread& thread : computing) thread.join();
  std::vector<double> all;
  for (const auto& own : times) all.insert(all.end(), own.begin(), own.end());
  double us = median(all);
  return json{{"us", us}, {"pages_per_s", us > 0 ? droppers * drop.pages * 1e6 / us : 0}};
}

}  // namespace farside::bench::scale
