#include "bench/scaling/model.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include "bench/scaling/cores.h"
#include "bench/scaling/events.h"
#include "measure/random.h"
#include "measure/statistics.h"
#include "pager/policy/shares.h"

namespace farside::bench::scaling {
namespace {

constexpr unsigned kIdleTurns = 15;      // polls of one microsecond before an evictor sleeps, as in EvictorGroup::run
constexpr unsigned kZonePages = 63;      // pages that the kernel moves at once between a core's list and the zone
constexpr unsigned kLruPages = 31;       // pages that the kernel adds to or removes from its LRU lists at once
constexpr uint64_t kMaxLowWater = 4096;  // Frames::low_water

double exponential(Random& random, double mean) { return -mean * std::log(1 - random.uniform()); }

struct Thread : Worker {
  double phases[kPhases] = {};
  uint64_t cached = 0;  // frames taken in advance and not used yet
  unsigned index = 0, zone_pages = 0, lru_pages = 0;
};

struct WriteUnderWay {
  uint64_t pages = 0;  // 0: the batch is free
  Time done = 0;
};

struct EvictorState : Thread {
  std::vector<WriteUnderWay> batches;
  uint32_t turn = 0;
  Time busy = 0;
};

class Model {
 public:
  explicit Model(const Scenario& s)
      : s_(s), w_(s.work), m_(s.machine), d_(s.design), random_(s.seed), cores_(simulation_, m_.cores, m_.slice) {
    shards_.resize(d_.shards);
    servers_.resize(std::max(1u, m_.servers));
    queues_.assign(d_.shards, 0);
    for (auto* lines : {&vma_, &file_, &map_lock_}) lines->resize(d_.stripes);
    for (auto* locks : {&zones_, &lrus_}) locks->resize((m_.cores + m_.cores_per_socket - 1) / m_.cores_per_socket);
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

  // ---- Time ----

  Time now() const { return simulation_.now(); }
  double spread(double us) { return us * (0.75 + 0.5 * random_.uniform()); }
  void count(Thread& t, Phase phase, Time us) { t.phases[static_cast<size_t>(phase)] += us; }

  // Work of the thread. The time of interrupts is added. At the end of the slice the thread may lose its core.
  Task spend(Thread& t, Time us, Phase phase) {
    Time stolen = std::exchange(t.stolen, 0);
    count(t, phase, us);
    count(t, Phase::kInterrupt, stolen);
    t.used += us + stolen;
    co_await simulation_.delay(us + stolen);
    if (!cores_.should_yield(t)) co_return;
    Time start = now();
    cores_.leave(t);
    co_await cores_.enter(t);
    count(t, Phase::kCore, now() - start);
  }

  Time line_cost(const Serial& line, unsigned core) const {
    if (line.last_core == core || line.last_core == Serial::kNoCore) return 0;
    return line.last_core / m_.cores_per_socket == core / m_.cores_per_socket ? m_.line_near : m_.line_far;
  }

  // A read-modify-write of a shared line. With `hold` it is a spin lock; if it is contended, two lines move: to acquire
  // it and to release it.
  Task touch(Thread& t, Serial& line, Phase phase, Time hold = 0) {
    Time start = now();
    Time move = line_cost(line, t.core) * (hold > 0 && line.free_at() > start ? 2 : 1);
    line.last_core = t.core;
    Time end = line.use(start, move + hold);
    t.used += end - start;
    count(t, phase, end - start);
    co_await simulation_.until(end);
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

  // Several pages arrive one after the other.
  Task fetch(Thread& t, uint64_t pages) {
    auto n = static_cast<Time>(pages);
    if (m_.link.in_place()) {
      Time arrived = now() + n * w_.fetch;
      hold_core(t, arrived - now());
      co_await simulation_.until(arrived);
      co_return;
    }
    if (m_.link.submit > 0) co_await spend(t, spread(m_.link.submit), Phase::kFetch);
    if (m_.server_is_here) co_await ask_server_here(t, pages);
    else co_await await_reply(t, reply_time(t, n));
    Time taking = m_.link.complete + n * m_.link.complete_page;
    if (taking > 0) co_await spend(t, spread(taking), Phase::kFetch);
  }

  // The time at which the pages are here. A server's thread answers its connections one after the other.
  Time reply_time(const Thread& t, Time pages) {
    Time asked = now() + m_.link.latency / 2, work = m_.link.serve + pages * m_.link.serve_page;
    if (work > 0) asked = servers_[t.index % servers_.size()].use(asked, work);
    return link_in_.use(asked, pages * m_.link.page) + m_.link.latency / 2;
  }

  void hold_core(Thread& t, Time us) {
    t.used += us;
    count(t, Phase::kFetch, us);
  }

  bool sleeps() const {
    return d_.wait == Wait::kSleep || (d_.wait == Wait::kAdaptive && waiting_ > std::max(1u, m_.cores / 2));
  }

  Task await_reply(Thread& t, Time arrived) {
    waiting_++;
    bool asleep = sleeps();
    if (asleep) {
      cores_.leave(t);
      count(t, Phase::kFetch, arrived - now());
    } else {
      hold_core(t, arrived - now());
    }
    co_await simulation_.until(arrived);
    waiting_--;
    if (asleep) co_await wake_up(t);
  }

  // The kernel's part of the wake-up takes the core's time, too.
  Task wake_up(Thread& t) {
    Time arrived = now();
    co_await simulation_.delay(m_.wake_latency);
    co_await cores_.enter(t);
    t.used += m_.wake;
    co_await simulation_.delay(m_.wake);
    count(t, Phase::kWake, now() - arrived);
  }

  // ---- A memory server on the same cores ----

  struct Request {
    uint64_t pages;
    Sleepers answered;
  };

  Task ask_server_here(Thread& t, uint64_t pages) {
    Request request{pages, {}};
    Time start = now();
    inbox_.push_back(&request);
    if (server_idle_.count() > 0) server_idle_.wake(simulation_, 1, now() + m_.link.latency / 2, 0);
    waiting_++;
    bool asleep = sleeps();
    if (asleep) cores_.leave(t);
    co_await request.answered.sleep();
    waiting_--;
    if (!asleep) hold_core(t, now() - start);
    else count(t, Phase::kFetch, now() - start);
    if (asleep) co_await wake_up(t);
  }

  Task server(Thread& t) {
    co_await cores_.enter(t);
    while (!done_) {
      if (inbox_.empty()) {
        cores_.leave(t);
        co_await server_idle_.sleep();
        co_await cores_.enter(t);
        continue;
      }
      Request& request = *inbox_.front();
      inbox_.pop_front();
      co_await spend(t, spread(m_.link.serve + static_cast<Time>(request.pages) * m_.link.serve_page), Phase::kHandle);
      request.answered.wake(simulation_, 1, now() + m_.link.latency / 2, 0);
    }
    cores_.leave(t);
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

  // Takes pages from, or returns them to, the kernel's free pages of the socket.
  Task zone(Thread& t, uint64_t pages) {
    t.zone_pages += static_cast<unsigned>(pages);
    for (; t.zone_pages >= kZonePages; t.zone_pages -= kZonePages)
      co_await touch(t, zones_[t.core / m_.cores_per_socket], Phase::kKernel, kZonePages * m_.zone_hold);
  }

  // Adds pages to, or removes them from, the kernel's LRU lists of the socket, `at_once` at a time.
  Task lru(Thread& t, uint64_t pages, unsigned at_once) {
    t.lru_pages += static_cast<unsigned>(pages);
    for (; t.lru_pages >= at_once; t.lru_pages -= at_once)
      co_await touch(t, lrus_[t.core / m_.cores_per_socket], Phase::kKernel, at_once * m_.lru_hold);
  }

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

  // The cores that run the program are interrupted one after the other; then all must have acknowledged.
  Task shoot_down(Thread& t) {
    unsigned others = 0;
    for (const auto& other : threads_) {
      if (other->core == t.core || !other->running) continue;
      others++;
      other->stolen += m_.interrupt;
    }
    if (others == 0) co_return;
    Time whole = m_.shootdown + m_.shootdown_per_core * (others - 1);
    Time sending = std::min(whole, m_.shootdown_serial * others);
    co_await touch(t, interrupts_, Phase::kHandle, sending);
    co_await spend(t, whole - sending, Phase::kHandle);
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

  struct Named {
    const char* name;
    std::vector<Serial*> resources;
  };
  std::vector<Named> named() {
    auto all = [](std::vector<Serial>& v) {
      std::vector<Serial*> p;
      for (Serial& s : v) p.push_back(&s);
      return p;
    };
    return {{"signal lock", {&siglock_}},
            {"mapping", all(vma_)},
            {"userfaultfd file", all(file_)},
            {"userfaultfd lock", all(map_lock_)},
            {"process memory", {&mm_}},
            {"frame counter", {&used_line_}},
            {"released event", {&released_line_}},
            {"policy shards", all(shards_)},
            {"free pages", all(zones_)},
            {"LRU lists", all(lrus_)},
            {"server threads", all(servers_)},
            {"link in", {&link_in_}},
            {"link out", {&link_out_}},
            {"interrupts", {&interrupts_}}};
  }
  double busy_of(const Named& n) {
    double sum = 0;
    for (Serial* s : n.resources) sum += s->busy();
    return sum / static_cast<double>(n.resources.size());
  }

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

  const Scenario s_;
  const WorkloadCosts& w_;
  const MachineCosts& m_;
  const Design& d_;
  Random random_;
  Simulation simulation_;
  Cores cores_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::unique_ptr<EvictorState>> evictors_;

  Serial siglock_, mm_, used_line_, released_line_, link_in_, link_out_, interrupts_;
  std::vector<Serial> vma_, file_, map_lock_, shards_, zones_, lrus_, servers_;
  Thread server_thread_;
  std::deque<Request*> inbox_;
  Sleepers server_idle_;
  unsigned waiting_ = 0;          // threads, for a page that comes over the link
  std::vector<uint64_t> queues_;  // entries per shard
  uint64_t used_ = 0;             // the shared counter, including additions that will be subtracted again
  uint64_t held_ = 0;             // frames that are held
  uint64_t releases_ = 0;
  uint64_t out_fetching_ = 0, out_writing_ = 0;
  Sleepers waiters_, work_;

  bool done_ = false;
  Time measured_from_ = -1;
  uint64_t pages_before_ = 0;
  std::vector<double> busy_before_, latencies_;
  Outcome out_;
};

}  // namespace

const char* phase_name(Phase phase) {
  constexpr const char* kNames[kPhases] = {"signal",  "signal lock", "own work",     "frames", "no frame",   "fetch",
                                           "wake-up", "map",         "kernel lines", "policy", "interrupts", "core"};
  return kNames[static_cast<size_t>(phase)];
}

Outcome simulate(const Scenario& scenario) { return Model(scenario).run(); }

}  // namespace farside::bench::scaling
