#include "pager/evict/evictor_group.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "base/os.h"
#include "pager/evict/sampler.h"
#include "pager/pages/budget.h"
#include "pager/thread/thread_slot.h"

namespace farside::pager {
namespace {

constexpr uint64_t kIdleSleepNs = 100 * 1000 * 1000;
constexpr uint64_t kUnattended = 512;  // frames that a process may have without an evictor
constexpr uint64_t kLongYieldUs = 20;  // a yield of this length shows that another thread needed the core

}  // namespace

EvictorGroup::EvictorGroup(const PageMemory& pages, const HugePageMemory& huge, Sizing& sizing, Sampler& sampler,
                           ThreadRegistry& registry, remote::RemoteStore* store, unsigned threads)
    : pages_(pages),
      huge_(huge),
      store_(store),
      frames_(pages.frames),
      budget_(pages.budget),
      pool_(huge.pool),
      sizing_(sizing),
      sampler_(sampler),
      registry_(registry),
      wanted_(threads > 0 ? threads : std::clamp(std::thread::hardware_concurrency() / 4, 1u, kMaxEvictors)),
      core_(kLongYieldUs) {}

EvictorGroup::~EvictorGroup() { stop(); }

void EvictorGroup::start() {
  if (started()) return;
  Status opened = open_all();
  if (!opened.ok()) die("{}", opened.text());
  int error = start_all();
  if (error) die("cannot start an evictor thread (error {}); raise 'ulimit -u'", -error);
}

void EvictorGroup::start_late() {
  if (started()) return;
  if (Status opened = open_all(); !opened.ok()) return postpone(opened);
  int error = start_all();
  if (!error) return;
  log(LogLevel::kError,
      "no more threads may be created (error {}); with {} evictor threads near memory may exceed --local", -error,
      running_.load());
}

// A program may have all descriptors that it is permitted to have.
void EvictorGroup::postpone(const Status& why) {
  if (why.code() != EMFILE && why.code() != ENFILE) die("{}", why.text());
  static std::atomic<bool> warned{false};
  if (!postponed_.exchange(true) && !warned.exchange(true))
    log(LogLevel::kWarning, "{}; until the program has closed files, near memory exceeds --local", why.text());
}

bool EvictorGroup::start_when_needed(void (*begin)()) {
  for (unsigned i = 0; i < wanted_; i++) {
    if (!threads_[i].prepare()) return false;
    make(i);
  }
  frames_.set_attention(kUnattended);
  deferred_.store(begin);
  if (frames_.used() >= kUnattended) start_if_deferred();
  return true;
}

// Where the lock is taken, threads are not to be started now: the next fault tries again.
void EvictorGroup::start_if_deferred() {
  if (!is_deferred() || !lifecycle_.try_lock()) return;
  auto begin = deferred_.exchange(nullptr);
  frames_.set_attention(UINT64_MAX);
  if (begin) begin();
  if (postponed_.exchange(false)) deferred_.store(begin);
  lifecycle_.unlock();
}

int EvictorGroup::start_all() {
  int error = 0;
  for (unsigned i = 0; i < wanted_ && !error; i++) error = start_one(i);
  while (working_.load() < running_.load()) os::sched_yield();  // until they all run, frames are taken beyond the limit
  if (!error) store_->start_threads();
  return error;
}

void EvictorGroup::make(unsigned index) {
  if (!evictors_[index])
    evictors_[index] = std::make_unique<Evictor>(pages_, huge_, store_, index, observer_, freed_, preferred_);
}

// Before the first thread, which reads the counters of all.
Status EvictorGroup::open_all() {
  Status status;
  for (unsigned i = 0; i < wanted_ && status.ok(); i++) {
    make(i);
    status = evictors_[i]->open();
  }
  return status;
}

int EvictorGroup::start_one(unsigned index) {
  running_.fetch_add(1);
  slots_[index].group = this;
  auto entry = [](void* argument) {
    auto* slot = static_cast<EvictorSlot*>(argument);
    slot->group->run(static_cast<unsigned>(slot - slot->group->slots_));
  };
  int error = threads_[index].start(entry, &slots_[index]);
  if (error) running_.fetch_sub(1);
  return error;
}

void EvictorGroup::stop() {
  if (!started()) return;
  store_->stop_threads();
  stopping_.store(true);
  wake_all();
  for (unsigned i = 0; i < running_.load(); i++) threads_[i].join();
  running_.store(0);
  working_.store(0);
  stopping_.store(false);
}

// The first evictor works until frames are plentiful, further ones only until the first one is sufficient.
bool EvictorGroup::is_wanted(unsigned index, bool working) const {
  if (!working) return frames_.is_below(index);
  return index == 0 ? !frames_.plentiful() : frames_.low();
}

void EvictorGroup::request_background_work() {
  if (!background_wanted_.load(std::memory_order_relaxed)) background_wanted_.store(true, std::memory_order_seq_cst);
  wake(0);
}

void EvictorGroup::request_mapping(ThreadSlot& thread) {
  thread.reads.wants_mapping.store(true, std::memory_order_release);
  request_background_work();
}

void EvictorGroup::request_frame() {
  if (pool_.wants_frame()) wake(0);
}

// Eviction has priority: a page that is not mapped ahead is mapped by the thread that faults on it.
bool EvictorGroup::work_in_background() {
  if (frames_.is_below(1)) return false;
  if (!background_wanted_.load(std::memory_order_relaxed) || !background_wanted_.exchange(false)) return false;
  if (background_work_(background_argument_)) return true;
  // A read that has not arrived yet: the thread that sends its data may need this core.
  if (background_wanted_.load(std::memory_order_relaxed)) core_.yield();
  return false;
}

void EvictorGroup::run(unsigned index) {
  os::name_thread("farside-evict");
  working_.fetch_add(1);
  Evictor& evictor = *evictors_[index];
  bool working = false;
  unsigned idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (pausing_.load(std::memory_order_acquire)) run_paused(index);
    if (regular_work_ && index == 0) regular_work_();
    if (index == 0 && sizing_.is_due()) size();
    working = is_wanted(index, working);
    bool progress = evictor.step(working);
    progress |= work_in_background();
    if (index == 0 && sampler_.is_due()) sampler_.step(evictor, evictor_ns());
    if (progress) {
      idle = 0;
      if (index == 0) fruitless_ = 0;
    } else if (++idle <= Evictor::kIdleSpins) {
      cpu_relax();
    } else if (evictor.busy()) {
      os::nanosleep_ns(Evictor::kWriteSleepNs);  // writes in flight: others may need this core meanwhile
    } else {
      sleep(index);
      idle = 0;
      if (index == 0) relieve_waiting();
    }
  }
  evictor.drain();
  registry_.detach();
}

// By the first evictor.
uint64_t EvictorGroup::evictor_ns() {
  evictors_[0]->count_cpu_time();
  uint64_t sum = 0;
  for (const auto& e : evictors_) sum += e ? e->counters().get(Counter::kEvictorCpuNs) : 0;
  return sum;
}

void EvictorGroup::size() {
  if (sizing_.step(evictor_ns())) wake();
}

// System calls in progress can have pinned all that is near: each may wait for more of it, or for something that never
// comes. When the first evictor has found nothing to evict in so many rounds, each of them with a pause, threads that
// wait for frames get them beyond the limit. What they take in all is bounded by what calls may pin (pin_limit in
// preload/guard/thread/pins.h). Where pages will leave soon, it takes longer to give up. A round is not fruitless if
// anything has released frames.
void EvictorGroup::relieve_waiting() {
  constexpr unsigned kFruitlessRounds = 8, kMoreRounds = 64;
  uint32_t released = frames_.released().value();
  fruitless_ = released == released_seen_ ? fruitless_ + 1 : 0;
  unsigned enough = evictors_[0]->leaving() > 0 ? kMoreRounds : kFruitlessRounds;
  if (fruitless_ >= enough && frames_.waiting() > 0) evictors_[0]->relieve();
  released_seen_ = frames_.released().value();
}

void EvictorGroup::run_paused(unsigned index) {
  evictors_[index]->drain();
  FARSIDE_CHECK(!evictors_[index]->busy());
  paused_.fetch_add(1);
  halted_.wake_all();
  while (pausing_.load()) {
    uint32_t seen = slots_[index].work.value();
    if (pausing_.load()) slots_[index].work.wait(seen, kIdleSleepNs);
  }
  unsigned before = paused_.fetch_sub(1);
  FARSIDE_CHECK(before > 0);
}

void EvictorGroup::sleep(unsigned index) {
  budget_.update_metadata();
  evictors_[index]->count_cpu_time();
  EvictorSlot& slot = slots_[index];
  uint32_t seen = slot.work.value();
  slot.asleep.store(true, std::memory_order_seq_cst);
  bool frame_wanted = index == 0 && pool_.wants_frame();
  if (frames_.is_below(index) || frame_wanted) os::nanosleep_ns(50000);  // every page is pinned or in transition
  else if (!background_wanted_.load() && !pausing_.load() && !stopping_.load())
    slot.work.wait(seen, index == 0 && sampler_.is_on() ? Sampler::kPauseNs : kIdleSleepNs);
  slot.asleep.store(false, std::memory_order_seq_cst);
}

void EvictorGroup::wake_all() {
  for (EvictorSlot& slot : slots_) slot.work.wake_all();
}

void EvictorGroup::pause() {
  lifecycle_.lock();
  if (!started()) return;
  FARSIDE_CHECK(!pausing_.load());
  pausing_.store(true);
  wake_all();
  while (paused_.load() < running_.load()) {
    uint32_t seen = halted_.value();
    if (paused_.load() < running_.load()) halted_.wait(seen, 1000000);
  }
}

void EvictorGroup::resume() {
  if (started()) {
    FARSIDE_CHECK(pausing_.load());
    pausing_.store(false);
    wake_all();
    // A following pause() must not count an evictor that has not left this one yet.
    while (paused_.load() > 0) os::sched_yield();
  }
  lifecycle_.unlock();
}

void EvictorGroup::reset_in_child() {
  running_.store(0);
  working_.store(0);
  paused_.store(0);
  pausing_.store(false);
  background_wanted_.store(false);
  kept_.store(false);
  deferred_.store(nullptr);
  postponed_.store(false);
  frames_.set_attention(UINT64_MAX);
  for (EvictorSlot& slot : slots_) {
    slot.work.reset_in_child();
    slot.asleep.store(false);
  }
  halted_.reset_in_child();
  for (ServiceThread& thread : threads_) thread.reset_in_child();
  lifecycle_.unlock();
  sizing_.reset_in_child();
  for (const auto& e : evictors_) {
    if (e) e->reset_in_child();
  }
}

void EvictorGroup::add_counters(Stats& stats) const {
  for (const auto& e : evictors_) {
    for (size_t i = 0; e && i < kCounters; i++) stats.counters[i] += e->counters().get(static_cast<Counter>(i));
  }
}

bool EvictorGroup::owns_fd(int fd) const {
  for (const auto& e : evictors_) {
    if (e && e->owns_fd(fd)) return true;
  }
  return false;
}

}  // namespace farside::pager
