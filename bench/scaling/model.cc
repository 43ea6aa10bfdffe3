#include "bench/scaling/model.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/scaling/machine.h"
#include "measure/statistics.h"
#include "pager/policy/shares.h"

namespace farside::bench::scaling {
namespace {

constexpr unsigned kIdleTurns = 15;      // polls of one microsecond before an evictor sleeps, as in EvictorGroup::run
constexpr uint64_t kMaxLowWater = 4096;  // Frames::low_water

double exponential(Random& random, double mean) { return -mean * std::log(1 - random.uniform()); }

struct WriteUnderWay {
  uint64_t pages = 0;  // 0: the batch is free
  Time done = 0;
};

struct EvictorState : Thread {
  std::vector<WriteUnderWay> batches;
  uint32_t turn = 0;
  Time busy = 0;
};

class Model : private Machine {
 public:
  explicit Model(const Scenario& s) : Machine(s) {
    queues_.assign(d_.shards, 0);
    fill();
  }

  Outcome run() {
    for (unsigned i = 0; i < s_.threads; i++) start_thread(i);
    for (unsigned i = 0; i < d_.evictors; i++) start_evictor(i);
    if (m_.server_is_here) simulation_.start(server(server_thread_));
    while (!done_ && simulation_.step()) {}
    return outcome();
  }

 private:
  // ---- Setting up ----

  // Starts with near memory as full as the evictors keep it, which shortens the warm-up.
  void fill() {
    uint64_t near = s_.frames - std::min(s_.frames, low_water() + low_water() / 2);
    for (uint64_t i = 0; i < d_.shards; i++) queues_[i] = near / d_.shards + (i < near % d_.shards ? 1 : 0);
    used_ = held_ = out_.max_frames = out_.queued_at_start = near;
  }

  void start_thread(unsigned index) {
    threads_.push_back(std::make_unique<Thread>());
    threads_.back()->index = index;
    threads_.back()->core = index % m_.cores;
    simulation_.start(application(*threads_.back()));
  }

  void start_evictor(unsigned index) {
    evictors_.push_back(std::make_unique<EvictorState>());
    EvictorState& e = *evictors_.back();
    e.index = index;
    e.core = (s_.threads + index) % m_.cores;
    e.batches.resize(d_.batches);
    simulation_.start(evictor(e));
  }

  // ---- Frames: frames.h ----

  uint64_t low_water() const {
    return std::clamp<uint64_t>(s_.frames / 64, std::min<uint64_t>(64, s_.frames / 4), kMaxLowWater);
  }
  bool low() const { return used_ + low_water() > s_.frames; }
  bool scarce() const { return used_ + low_water() / 4 > s_.frames; }
  bool comfortable() const { return used_ + 2 * low_water() <= s_.frames; }

  // An addition beyond the limit is subtracted again. Until then others see it.
  Task try_take(Thread& t, uint64_t frames, bool* taken) {
    co_await touch(t, used_line_, Phase::kFrames);
    used_ += frames;
    *taken = used_ <= s_.frames;
    if (*taken) {
      held_ += frames;
      out_.max_frames = std::max(out_.max_frames, held_);
      co_return;
    }
    co_await touch(t, used_line_, Phase::kFrames);
    used_ -= frames;
  }

  Task give(Thread& t, uint64_t frames) {
    co_await touch(t, used_line_, Phase::kFrames);
    used_ -= frames;
    held_ -= frames;
    releases_++;
    co_await touch(t, released_line_, Phase::kFrames);
    size_t woken =
        std::min<size_t>(waiters_.count(), d_.frames_per_wake > 0 ? frames / d_.frames_per_wake + 1 : ~size_t{0});
    if (woken == 0) co_return;
    waiters_.wake(simulation_, woken, now() + m_.wake_latency, m_.wake);
    co_await spend(t, static_cast<Time>(woken) * m_.wake, Phase::kFrames);
  }

  Task wake_evictors(Thread& t) {
    size_t asleep = work_.count();
    if (asleep == 0) co_return;
    work_.wake(simulation_, asleep, now() + m_.wake_latency, m_.wake);
    co_await spend(t, static_cast<Time>(asleep) * m_.wake, Phase::kFrames);
  }

  // FetchPath::take_frame.
  Task take_frame(Thread& t) {
    if (t.cached > 0) {
      t.cached--;
      if (low()) co_await wake_evictors(t);
      co_return;
    }
    co_await touch(t, used_line_, Phase::kFrames);  // low() reads what try_take changes
    if (low()) co_await wake_evictors(t);
    bool taken = false;
    if (d_.frame_cache > 1 && !scarce()) {
      co_await try_take(t, d_.frame_cache, &taken);
      if (taken) t.cached = d_.frame_cache - 1;
    }
    if (!taken) co_await try_take(t, 1, &taken);
    if (!taken) co_await wait_for_frame(t);
  }

  Task wait_for_frame(Thread& t) {
    out_.frame_waits++;
    double frames_before = t.phases[static_cast<size_t>(Phase::kFrames)];
    Time start = now();
    for (unsigned spins = 0;; spins++) {
      if (d_.synchronous) {
        out_.synchronous++;
        co_await evict_and_wait(t);
      }
      co_await wake_evictors(t);
      uint64_t seen = releases_;
      bool taken = false;
      if (!d_.look_before_take || used_ < s_.frames) co_await try_take(t, 1, &taken);
      if (taken) break;
      if (spins < d_.frame_spins || seen != releases_) {
        co_await simulation_.delay(spread(m_.pause));
        continue;
      }
      co_await simulation_.delay(static_cast<Time>(s_.threads) * m_.pause);  // polls the reads of every thread
      if (seen != releases_) continue;
      cores_.leave(t);
      co_await waiters_.sleep();
      co_await cores_.enter(t);
    }
    t.phases[static_cast<size_t>(Phase::kFrames)] = frames_before;  // this time belongs to kNoFrame
    count(t, Phase::kNoFrame, now() - start);
  }

  // ---- The fault path: fault_path.cc, fetch_path.cc ----

  Task application(Thread& t) {
    co_await cores_.enter(t);
    while (!done_) {
      co_await spend(t, exponential(random_, w_.access / w_.faults_per_access), Phase::kSignal);
      t.phases[static_cast<size_t>(Phase::kSignal)] = 0;
      std::fill(std::begin(t.phases), std::end(t.phases), 0);
      Time start = now();
      co_await fault(t);
      record_fault(t, now() - start);
    }
    cores_.leave(t);
  }

  Task fault(Thread& t) {
    unsigned stripe = static_cast<unsigned>(random_.next() % d_.stripes);
    co_await touch(t, vma_[stripe], Phase::kKernel);  // the fault takes a reference to the mapping
    co_await touch(t, vma_[stripe], Phase::kKernel);
    unsigned half = d_.signal_locks / 2;
    double own = d_.signal_locks > 0 ? std::max(0.0, w_.signal - m_.siglock_hold) : 0;
    co_await signal(t, spread(own / 2), d_.signal_locks - half);
    uint64_t pages = 0;
    co_await claim(t, &pages);
    co_await spend(t, spread(w_.handle * static_cast<Time>(pages) / w_.pages_per_fault), Phase::kHandle);
    co_await fetch(t, pages);
    co_await map(t, pages, stripe);
    co_await insert(t, pages);
    co_await signal(t, spread(own / 2), half);
  }

  Task signal(Thread& t, Time own, unsigned locks) {
    co_await spend(t, own, Phase::kSignal);
    for (unsigned i = 0; i < locks; i++) co_await touch(t, siglock_, Phase::kSignalLock, m_.siglock_hold / 4);
  }

  // The faulting page and the pages of its window.
  Task claim(Thread& t, uint64_t* pages) {
    co_await take_frame(t);
    *pages = 1;
    auto wanted = static_cast<uint64_t>(w_.pages_per_fault + random_.uniform());
    bool taken = true;
    if (wanted > 1 && d_.take_window_at_once && !scarce()) {
      co_await try_take(t, wanted - 1, &taken);
      if (taken) *pages = wanted;
    } else {
      for (; *pages < wanted && !scarce(); ++*pages) {
        co_await touch(t, used_line_, Phase::kFrames);  // scarce() reads what try_take changes
        co_await try_take(t, 1, &taken);
        if (!taken) break;
      }
    }
    out_fetching_ += *pages;
  }

  // UFFDIO_COPY. It takes and returns a reference to each of: the userfaultfd's file, the process's memory descriptor,
  // the lock against changes of mappings, and the mapping.
  Task map(Thread& t, uint64_t pages, unsigned stripe) {
    Serial* lines[] = {&file_[stripe], &mm_, &map_lock_[stripe], &vma_[stripe]};
    for (Serial* line : lines) co_await touch(t, *line, Phase::kKernel);
    if (by_frames()) {  // recycled ones, which the kernel neither allocates nor frees
      Time copying = m_.link.in_place() ? static_cast<Time>(pages) * m_.copy : 0;
      co_await spend(t, spread(frames_of(pages) * m_.move + copying), Phase::kMap);
      for (Serial* line : lines) co_await touch(t, *line, Phase::kKernel);
      co_return;
    }
    Time own = std::max(0.0, w_.map - m_.zone_hold - m_.lru_hold);
    co_await spend(t, spread(static_cast<Time>(pages) * own), Phase::kMap);
    co_await zone(t, pages);
    co_await lru(t, pages, kLruPages);
    for (Serial* line : lines) co_await touch(t, *line, Phase::kKernel);
  }

  bool by_frames() const { return d_.frame_pages > 1; }
  Time frames_of(uint64_t pages) const { return static_cast<Time>(pages) / d_.frame_pages; }

  Task insert(Thread& t, uint64_t pages) {
    unsigned shard = t.index % d_.shards;
    uint64_t at_once = d_.insert_window_at_once || by_frames() ? pages : 1;
    for (uint64_t i = 0; i < pages; i += at_once) {
      Time entries = by_frames() ? frames_of(at_once) : static_cast<Time>(at_once);
      co_await touch(t, shards_[shard], Phase::kPolicy, m_.shard_hold * entries);
      queues_[shard] += at_once;
      out_.inserted += at_once;
      out_fetching_ -= at_once;
    }
    out_.pages += pages;
  }

  void record_fault(Thread& t, Time took) {
    out_.faults++;
    if (measured_from_ < 0) {
      if (out_.faults >= s_.faults / 3) begin_to_measure();
      return;
    }
    latencies_.push_back(took);
    for (size_t i = 0; i < kPhases; i++) out_.phases[i] += t.phases[i];
    if (latencies_.size() >= s_.faults) done_ = true;
  }

  // ---- The eviction path: evictor.cc, evictor_group.cc ----

  Task evictor(EvictorState& e) {
    co_await cores_.enter(e);
    bool working = false;
    unsigned idle = 0;
    while (!done_) {
      working = working ? !comfortable() : low();
      bool progress = false;
      Time start = now();
      co_await step(e, working, &progress);
      if (progress) {
        e.busy += now() - start;
        idle = 0;
      } else if (++idle <= kIdleTurns || is_busy(e)) {
        co_await spend(e, 1, Phase::kHandle);
      } else {
        cores_.leave(e);
        if (!low()) co_await work_.sleep();
        co_await cores_.enter(e);
        idle = 0;
      }
    }
    cores_.leave(e);
  }

  static bool is_busy(const EvictorState& e) {
    return std::any_of(e.batches.begin(), e.batches.end(), [](const WriteUnderWay& b) { return b.pages > 0; });
  }

  Task step(EvictorState& e, bool wanted, bool* progress) {
    for (WriteUnderWay& b : e.batches) {
      if (b.pages == 0 || b.done > now()) continue;
      co_await finish(e, b);
      *progress = true;
    }
    if (!wanted) co_return;
    for (WriteUnderWay& b : e.batches) {
      if (b.pages > 0) continue;
      co_await start(e, e.index, e.turn++, b, progress);
      co_return;
    }
  }

  Task start(Thread& t, unsigned index, uint32_t turn, WriteUnderWay& batch, bool* progress) {
    uint64_t pages = 0;
    co_await select(t, index, turn, &pages);
    if (pages == 0) co_return;
    *progress = true;
    auto n = static_cast<Time>(pages);
    uint64_t dirty = std::min(pages, static_cast<uint64_t>(w_.dirty * n + random_.uniform()));
    Time unmapping = by_frames() ? frames_of(pages) * m_.move : n * (w_.hold + own_unmap());
    co_await spend(t, spread(unmapping), Phase::kHandle);
    co_await touch(t, mm_, Phase::kKernel);
    co_await shoot_down(t);
    if (!by_frames()) {
      co_await zone(t, pages);
      co_await lru(t, pages - dirty, kLruPages);
    }
    out_.batches++;
    out_.evicted += pages;
    out_writing_ += dirty;
    if (pages > dirty) co_await give(t, pages - dirty);
    if (dirty == 0) co_return;
    // The pipe holds the last references to the frames, so the kernel frees them one by one.
    co_await spend(t, spread(std::max(0.0, n * w_.write - static_cast<Time>(dirty) * m_.lru_hold)), Phase::kHandle);
    co_await lru(t, dirty, 1);
    Time sent = !m_.link.in_place() ? link_out_.use(now(), static_cast<Time>(dirty) * m_.link.page) : now();
    batch = {dirty, sent + m_.link.latency};
  }

  // The cost of unmapping a page without the locks that are modelled separately.
  Time own_unmap() const { return std::max(0.0, w_.unmap - m_.zone_hold - (1 - w_.dirty) * m_.lru_hold); }

  // Each page is examined under the lock of its shard. Its page word is in the cache of the core that fetched it.
  Task select(Thread& t, unsigned index, uint32_t turn, uint64_t* pages) {
    std::vector<size_t> shares(d_.shards);
    pager::share_out(d_.batch, turn, queues_, shares);
    Time word = std::max(0.0, m_.line_far - 0.05) / 2;
    for (unsigned i = 0; i < d_.shards; i++) {  // a frame is one entry
      unsigned shard = (index * d_.shards / std::max(1u, d_.evictors) + i) % d_.shards;
      for (size_t k = 0; k < shares[shard] && queues_[shard] > 0;) {
        uint64_t entry = std::min<uint64_t>(d_.frame_pages, queues_[shard]);
        queues_[shard] -= entry;
        out_.taken_out += entry;
        *pages += entry;
        k += entry;
        co_await touch(t, shards_[shard], Phase::kPolicy, m_.shard_hold);
      }
    }
    Time entries = frames_of(*pages);
    co_await spend(t, spread(entries * (std::max(0.0, w_.select - m_.shard_hold) + word)), Phase::kHandle);
  }

  Task finish(Thread& t, WriteUnderWay& batch) {
    uint64_t pages = batch.pages;
    co_await spend(t, static_cast<Time>(pages) * w_.release / std::max(w_.dirty, 0.01), Phase::kHandle);
    batch.pages = 0;
    out_writing_ -= pages;
    co_await give(t, pages);
  }

  // Synchronous eviction by a faulting thread: no part of the latency is hidden.
  Task evict_and_wait(Thread& t) {
    WriteUnderWay batch;
    bool progress = false;
    co_await start(t, t.index, t.index, batch, &progress);
    if (batch.pages == 0) co_return;
    co_await simulation_.until(batch.done);
    co_await finish(t, batch);
  }

  // ---- Figures ----

  void begin_to_measure() {
    measured_from_ = now();
    pages_before_ = out_.pages;
    busy_before_.clear();
    for (const Named& n : named()) busy_before_.push_back(busy_of(n));
    for (auto& e : evictors_) e->busy = 0;
    latencies_.reserve(s_.faults);
  }

  Outcome outcome() {
    Outcome o = std::move(out_);
    if (measured_from_ < 0 || latencies_.empty()) return o;
    o.us = now() - measured_from_;
    auto faults = static_cast<double>(latencies_.size());
    o.pages_per_s = static_cast<double>(o.pages - pages_before_) / o.us * 1e6;
    double accesses = static_cast<double>(o.pages - pages_before_) / (w_.faults_per_access * w_.pages_per_fault);
    o.access_us = o.us * s_.threads / accesses;
    for (double& phase : o.phases) phase /= faults;
    for (double l : latencies_) o.mean_us += l / faults;
    o.p50_us = quantile(latencies_, 0.5);
    o.p99_us = quantile(latencies_, 0.99);
    for (auto& e : evictors_) o.evictor_busy += e->busy / o.us / static_cast<double>(evictors_.size());
    auto all = named();
    for (size_t i = 0; i < all.size(); i++) o.uses.push_back({all[i].name, (busy_of(all[i]) - busy_before_[i]) / o.us});
    o.uses.push_back({"evictors", o.evictor_busy});
    std::stable_sort(o.uses.begin(), o.uses.end(), [](const Use& a, const Use& b) { return a.share > b.share; });
    for (uint64_t q : queues_) o.queued += q;
    for (auto& t : threads_) o.cached += t->cached;
    o.in_use = held_;
    o.fetching = out_fetching_;
    o.writing = out_writing_;
    return o;
  }

  std::vector<std::unique_ptr<EvictorState>> evictors_;

  std::vector<uint64_t> queues_;  // entries per shard
  uint64_t used_ = 0;             // the shared counter, including additions that will be subtracted again
  uint64_t held_ = 0;             // frames that are held
  uint64_t releases_ = 0;
  uint64_t out_fetching_ = 0, out_writing_ = 0;
  Sleepers waiters_, work_;

  Time measured_from_ = -1;
  uint64_t pages_before_ = 0;
  std::vector<double> busy_before_, latencies_;
  Outcome out_;
};

}  // namespace

Outcome simulate(const Scenario& scenario) { return Model(scenario).run(); }

}  // namespace farside::bench::scaling
