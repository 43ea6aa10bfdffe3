// The simulated machine: cores, the data that threads share there and in the kernel, and the link to far memory with
// its server. Coroutines that run on it are threads.
#pragma once
#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "bench/scaling/cores.h"
#include "bench/scaling/events.h"
#include "bench/scaling/scenario.h"
#include "measure/random.h"

namespace farside::bench::scaling {

inline constexpr unsigned kZonePages = 63;  // pages that the kernel moves at once between a core's list and the zone
inline constexpr unsigned kLruPages = 31;   // pages that the kernel adds to or removes from its LRU lists at once

struct Thread : Worker {
  double phases[kPhases] = {};
  uint64_t cached = 0;  // frames taken in advance and not used yet
  unsigned index = 0, zone_pages = 0, lru_pages = 0;
};

class Machine {
 public:
  explicit Machine(const Scenario& s)
      : s_(s), w_(s.work), m_(s.machine), d_(s.design), random_(s.seed), cores_(simulation_, m_.cores, m_.slice) {
    shards_.resize(d_.shards);
    servers_.resize(std::max(1u, m_.servers));
    for (auto* lines : {&vma_, &file_, &map_lock_}) lines->resize(d_.stripes);
    for (auto* locks : {&zones_, &lrus_}) locks->resize((m_.cores + m_.cores_per_socket - 1) / m_.cores_per_socket);
  }

 protected:
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
    return line.last_core / m_.cores_per_socket == core / m_.cores_per_socket ? m_.line : m_.line_far;
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

  // ---- The link ----

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

  // ---- What was in use ----

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

  const Scenario s_;
  const WorkloadCosts& w_;
  const MachineCosts& m_;
  const Design& d_;
  Random random_;
  Simulation simulation_;
  Cores cores_;
  std::vector<std::unique_ptr<Thread>> threads_;
  Serial siglock_, mm_, used_line_, released_line_, link_in_, link_out_, interrupts_;
  std::vector<Serial> vma_, file_, map_lock_, shards_, zones_, lrus_, servers_;
  Thread server_thread_;
  std::deque<Request*> inbox_;
  Sleepers server_idle_;
  unsigned waiting_ = 0;  // threads, for a page that comes over the link
  bool done_ = false;
};

}  // namespace farside::bench::scaling
