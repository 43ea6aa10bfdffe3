// Threads perform random operations, all that a program can do to far memory, and compare it with a shadow copy in near
// memory. Exits with status 0, with 1 after a difference, and aborts after 30 s without progress. See
// docs/internals/testing.md.
#include <unistd.h>

#include <list>
#include <thread>

#include "base/inject.h"
#include "base/size.h"
#include "command/command.h"
#include "far_side.h"
#include "stress_worker.h"

namespace farside::stress {
namespace {

constexpr uint64_t kStuckNs = 30ull * 1000 * 1000 * 1000;
constexpr uint64_t kExtraNs = 2 * kStuckNs;  // what a slow machine may need beyond --seconds

#ifdef FARSIDE_EXPENSIVE_CHECKS
constexpr bool kCanInject = true;
#else
constexpr bool kCanInject = false;
#endif

Options options_of(const Settings& s) {
  Options o;
  o.local = {s.memory * (s.local ? s.local : 25) / 100, 0};
  o.slowdown = 10;
  policy_from_name(s.policy, &o.policy);
  o.evictors = s.evictors;
  if (Status known = set_option(&o, "--tune writeback", s.writeback); !known.ok()) die("{}", known.text());
  if (Status known = set_option(&o, "--huge", s.huge); !known.ok()) die("{}", known.text());
  o.prefetch = s.prefetch;
  o.space = align_up(s.memory * 4, remote::kSlabBytes);
  return o;
}

// Pauses now and then, long enough for other threads to access the page in the middle of the operation.
void dawdle(void*) {
  static std::atomic<uint64_t> calls{0};
  uint64_t n = calls.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15 >> 56;
  if (n < 8) os::nanosleep_ns(n * 30000);
  else if (n < 64) os::sched_yield();
}

void arm_faults() {
#ifdef FARSIDE_EXPENSIVE_CHECKS
  inject::arm_failure("uffd_copy", 13);
  inject::arm_failure("vmsplice", 29);
  inject::arm_failure("uffd_move", 7);
  inject::arm_failure("uffd_move:unreported", 11);
  for (const char* point : {"evict:selected", "evict:held", "evict:unmapped", "fault:claimed", "fault:upgrading",
                            "fault:mapped", "drop:owned", "commit:owned", "huge:claimed", "huge:protected",
                            "huge:moved", "huge:published", "huge:evicting", "huge:upgrading"}) {
    inject::arm_pause(point, dawdle, nullptr);
  }
#endif
  (void)dawdle;
}

// What the run should have tested and has not, as an error message; nullptr if nothing is missing.
const char* find_untested(const World& world, FarSide& far_side) {
  pager::Stats stats = world.pager.stats();
  if (stats.get(pager::Counter::kDirtyEvictions) == 0)
    return "nothing was evicted: this run tested nothing; lower --local";
  bool whole = stats.get(pager::Counter::kHugeFetched) > 0 && stats.get(pager::Counter::kHugeEvicted) > 0;
  if (world.settings.huge == "always" && world.pager.paging().uses_huge_pages() && !whole)
    return "no huge page was fetched and evicted as a whole: this run did not test them; raise --memory";
  bool compresses = world.settings.transport.starts_with("compressed");
  if (compresses && !far_side.has_compressed())
    return "no page was compressed by LZ4, or none by zstd: this run did not test that";
  if (world.settings.transport.starts_with("overflow") && !far_side.overflows())
    return "no page is in the overflow file: this run did not test that; raise --memory";
  return nullptr;
}

// Starts a thread for every worker that has none, changes the limit, and watches for progress. Runs for --seconds, and
// longer while something is untested: under a sanitizer on a slow machine few huge pages are whole in that time.
class Driver {
 public:
  Driver(World& world, FarSide& far_side) : world_(world), far_side_(far_side), random_(world.settings.seed) {}

  void run() {
    auto duration = static_cast<uint64_t>(world_.settings.seconds * 1e9);
    uint64_t end = now_ns() + duration, half = end - duration / 2;
    for (bool killed = false; now_ns() < end || (now_ns() < end + kExtraNs && find_untested(world_, far_side_));) {
      tick();
      if (!killed && now_ns() > half) {
        far_side_.kill_one(world_.settings.seed);
        killed = true;
      }
      for (StressWorker* w : world_.workers) {
        if (!w->running.exchange(true)) start(*w);
      }
    }
    world_.stop.store(true);
    while (any_running()) tick();
    join_finished(true);
  }
  uint64_t operations() const {
    uint64_t sum = 0;
    for (StressWorker* w : world_.workers) sum += w->operations.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct WorkerThread {
    std::thread thread;
    std::atomic<bool> started{false}, finished{false}, may_end{kForkLocksAllocator};
  };

  void start(StressWorker& worker) {
    started_++;
    world_.starting.lock();
    WorkerThread& t = threads_.emplace_back();
    t.thread = std::thread([&worker, &t] {
      t.started.store(true);
      worker.run_for_a_while();
      worker.running.store(false);
      t.finished.store(true);
      while (!t.may_end.load()) os::nanosleep_ns(100000);
    });
    while (!kForkLocksAllocator && !t.started.load()) os::sched_yield();
    world_.starting.unlock();
  }

  bool any_running() const {
    for (StressWorker* w : world_.workers) {
      if (w->running.load()) return true;
    }
    return false;
  }

  void join_finished(bool all) {
    world_.starting.lock();
    threads_.remove_if([&](WorkerThread& t) {
      if (!all && !t.finished.load()) return false;
      t.may_end.store(true);
      t.thread.join();
      return true;
    });
    world_.starting.unlock();
  }

  // Every third one is automatic, and shrinks as fast as it may.
  void change_limit() {
    uint64_t bytes = world_.settings.memory * random_.between(5, 50) / 100;
    SizeOrShare automatic = {bytes, SizeOrShare::kAutomatic, bytes / 4};
    world_.pager.evictors().set_local(random_.one_in(3) ? automatic : SizeOrShare{bytes, 0});
  }

  void tick() {
    os::nanosleep_ns(3000000);
    join_finished(false);
    if (world_.settings.local == 0 && random_.one_in(5)) change_limit();
    uint64_t done = operations(), now = now_ns();
    if (done != last_done_) {
      last_done_ = done;
      last_progress_ns_ = now;
    }
    if (now - last_progress_ns_ > kStuckNs) world_.abort_stuck();
    if (now - last_shown_ns_ > 500000000 && isatty(2)) {
      last_shown_ns_ = now;
      fprintf(stderr, "\r%12lu operations %6zu threads started", static_cast<unsigned long>(done), started_);
    }
  }

  World& world_;
  FarSide& far_side_;
  Random random_;
  std::list<WorkerThread> threads_;
  uint64_t last_done_ = 0, last_progress_ns_ = now_ns(), last_shown_ns_ = 0;
  size_t started_ = 0;
};

void allocate_shared_pages(World& world) {
  world.shared_pages.pages = world.settings.memory / 8 / kPageSize;
  size_t bytes = world.shared_pages.pages * kPageSize;
  world.shared_pages.far = world.pager.addresses().reserve(bytes, kPageSize);
  Status s = world.pager.addresses().commit(world.shared_pages.far, bytes);
  if (!world.shared_pages.far || !s.ok()) die("cannot allocate: {}", s.text());
}

// Frees everything. Then no frame and no page may be counted.
void check_nothing_left(World& world) {
  for (StressWorker* w : world.workers) w->free_all();
  world.pager.addresses().decommit(world.shared_pages.far, world.shared_pages.pages * kPageSize);
  world.pager.addresses().release(world.shared_pages.far, world.shared_pages.pages * kPageSize);
  pager::Stats s = world.pager.stats();
  if (s.near_pages != 0)
    die("{} frames are still counted after everything was freed; seed {}", s.near_pages, world.settings.seed);
  if (s.populated_pages != 0)
    die("{} pages are still counted as populated after everything was freed", s.populated_pages);
  world.pager.check_valid();
}

void print_summary(const Settings& s, uint64_t operations, const pager::Stats& stats) {
  using pager::Counter;
  printf(
      "ok: seed %lu, %lu operations, %lu faults (%lu fetched, %lu first writes, %lu waits), %lu prefetched, %lu "
      "evicted (%lu dirty); huge pages: %lu fetched, %lu filled, %lu evicted, %lu broken, %lu upgraded\n",
      static_cast<unsigned long>(s.seed), static_cast<unsigned long>(operations), stats.get(Counter::kFaults),
      stats.get(Counter::kMajorFaults), stats.get(Counter::kProtectionFaults), stats.get(Counter::kWaitFaults),
      stats.get(Counter::kPrefetched), stats.get(Counter::kEvictions), stats.get(Counter::kDirtyEvictions),
      stats.get(Counter::kHugeFetched), stats.get(Counter::kHugeFilled), stats.get(Counter::kHugeEvicted),
      stats.get(Counter::kHugeBroken), stats.get(Counter::kHugeUpgraded));
}

void run(const Settings& s) {
  Options options = options_of(s);
  FarSide far_side(s.transport, options.space, align_up(s.memory * 3, remote::kSlabBytes) + 256 * kMiB);
  {
    pager::PagerFixture fixture(options, far_side.store(),
                                s.delivery == "signal" ? pager::Delivery::kSignal : pager::Delivery::kMessages);
    World world(s, *fixture);
    allocate_shared_pages(world);
    std::vector<std::unique_ptr<StressWorker>> workers;
    for (unsigned i = 0; i < s.threads; i++) {
      workers.push_back(std::make_unique<StressWorker>(world, i));
      world.workers.push_back(workers.back().get());
    }
    if (s.faults) arm_faults();
    Driver driver(world, far_side);
    driver.run();
    for (StressWorker* w : world.workers) w->wait_for_children();
    for (StressWorker* w : world.workers) w->verify_all("at the end");
    pager::Stats stats = world.pager.stats();
    if (const char* untested = find_untested(world, far_side)) die("{}", untested);
    check_nothing_left(world);
    print_summary(s, driver.operations(), stats);
  }
  if (far_side.leaks()) die("the server still has a region of a closed client");
}

void add_options(Command& command, Settings* s, std::string* memory) {
  command.add_option("--seconds", &s->seconds, "duration").positive();
  command.add_option("--seed", &s->seed, "of the random choices");
  command.add_option("--threads", &s->threads, "").range(1u, SharedPages::kStripes);
  command.add_option("--memory", memory, "far memory in use, as in 48M");
  command.add_option("--local", &s->local, "percent of it that may be near; 0: changes continuously").range(0u, 100u);
  command.add_option("--delivery", &s->delivery, "").one_of({"signal", "handler"});
  command.add_option("--transport", &s->transport, "")
      .one_of({"direct", "copy", "shm", "tcp", "ucx", "file", "replicas", "shm_replicas", "compressed_shm",
               "compressed_tcp", "overflow_shm"});
  command.add_option("--policy", &s->policy, "").one_of({"2q", "fifo", "lru", "priority"});
  command.add_option("--evictors", &s->evictors, "").range(1U, kMaxEvictors);
  command.add_option("--writeback", &s->writeback, "").one_of({"auto", "page", "line"});
  command.add_option("--huge", &s->huge, "").one_of({"auto", "always", "never"});
  command.add_flag("--prefetch,!--no-prefetch", &s->prefetch, "");
  command.add_flag("--forks,!--no-forks", &s->forks, "");
  command.add_flag("--protect,!--no-protect", &s->protect, "");
  command.add_flag("--faults", &s->faults, "inject failures and pauses");
}

int run_checked(Settings s, const std::string& memory) {
  if (s.faults && !kCanInject)
    return fail(Status::error(EINVAL, "--faults needs a build with FARSIDE_EXPENSIVE_CHECKS"), kExitUsage);
  if (!memory.empty()) {
    Result<uint64_t> bytes = parse_size(memory);
    if (!bytes.ok()) return fail(bytes.status(), kExitUsage);
    s.memory = *bytes;
  }
  s.forks = s.forks && s.delivery == "signal";
  run(s);
  return 0;
}

}  // namespace

int run_stress(int argc, const char* const* argv) {
  Command command("shadow_stress",
                  "Compares far memory with a shadow copy while threads perform random operations on it.");
  Settings settings;
  std::string memory;
  add_options(command, &settings, &memory);
  command.set_action([&] { return run_checked(settings, memory); });
  return command.run({argv + 1, argv + argc});
}

}  // namespace farside::stress

int main(int argc, char** argv) { return farside::stress::run_stress(argc, argv); }
