#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "bench/runner/report.h"
#include "bench/runner/runner.h"
#include "bench/scaling/calibrate.h"
#include "bench/scaling/cores.h"
#include "bench/scaling/costs.h"
#include "bench/scaling/events.h"
#include "bench/scaling/model.h"
#include "bench/scaling/scaling.h"
#include "report/test_folder.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

Task note_at(Simulation& simulation, Time when, int number, std::vector<int>* order) {
  co_await simulation.until(when);
  order->push_back(number);
}

TEST(EventsTest, HappenInTheOrderOfTheirTimesAndThenOfTheirAnnouncement) {
  Simulation simulation;
  std::vector<int> order;
  simulation.start(note_at(simulation, 3, 1, &order));
  simulation.start(note_at(simulation, 1, 2, &order));
  simulation.start(note_at(simulation, 3, 3, &order));
  simulation.start(note_at(simulation, 2, 4, &order));
  while (simulation.step()) {}
  EXPECT_EQ(order, std::vector<int>({2, 4, 1, 3}));
  EXPECT_EQ(simulation.now(), 3);
}

Task sleep_and_note(Sleepers& sleepers, int number, std::vector<int>* order) {
  co_await sleepers.sleep();
  order->push_back(number);
}

TEST(EventsTest, TheLongestSleeperWakesFirst) {
  Simulation simulation;
  Sleepers sleepers;
  std::vector<int> order;
  for (int i = 0; i < 3; i++) simulation.start(sleep_and_note(sleepers, i, &order));
  while (simulation.step()) {}
  sleepers.wake(simulation, 2, 10, 1);
  while (simulation.step()) {}
  EXPECT_EQ(order, std::vector<int>({0, 1}));
  EXPECT_EQ(sleepers.count(), 1u);
  EXPECT_EQ(simulation.now(), 11);
}

// An M/D/1 queue: Poisson arrivals, fixed service time. The mean wait is rho / (2 (1 - rho)) service times.
TEST(EventsTest, AQueueWaitsAsLongAsMD1) {
  for (double rho : {0.3, 0.6, 0.8}) {
    Serial server;
    uint64_t state = 88172645463325252u;
    double now = 0, waited = 0;
    constexpr int kArrivals = 2000000;
    for (int i = 0; i < kArrivals; i++) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      now += -std::log(1 - static_cast<double>(state >> 11) * 0x1.0p-53) / rho;
      waited += server.use(now, 1) - now - 1;
    }
    double expected = rho / (2 * (1 - rho));
    EXPECT_NEAR(waited / kArrivals, expected, 0.03 * expected + 0.003) << rho;
  }
}

Task use_core(Simulation& simulation, Cores& cores, Worker& worker, Time us, std::vector<Time>* ends) {
  co_await cores.enter(worker);
  for (Time done = 0; done < us; done++) {
    worker.used++;
    co_await simulation.delay(1);
    if (!cores.should_yield(worker)) continue;
    cores.leave(worker);
    co_await cores.enter(worker);
  }
  cores.leave(worker);
  ends->push_back(simulation.now());
}

TEST(CoresTest, WorkersShareACoreAndNoneWaitsWhileOneIsFree) {
  for (unsigned count : {1u, 2u}) {
    Simulation simulation;
    Cores cores(simulation, count, 100);
    std::vector<Worker> workers(4);
    std::vector<Time> ends;
    for (Worker& w : workers) simulation.start(use_core(simulation, cores, w, 1000, &ends));
    while (simulation.step()) {}
    ASSERT_EQ(ends.size(), 4u);
    EXPECT_NEAR(ends.back(), 4000 / count, 0.03 * 4000 / count);
    EXPECT_GT(ends.front(), 0.8 * ends.back());  // they took turns
  }
}

// A machine on which everything is free except what the test sets.
Scenario free_scenario(unsigned threads) {
  Scenario s;
  s.machine = large_machine(threads + 8);
  s.machine.line = s.machine.line_far = s.machine.siglock_hold = s.machine.zone_hold = s.machine.lru_hold = 0;
  s.machine.shard_hold = s.machine.shootdown = s.machine.shootdown_per_core = s.machine.shootdown_serial = 0;
  s.machine.interrupt = s.machine.wake = 0;
  s.work = {.access = 0, .signal = 0, .handle = 0, .map = 0, .select = 0, .unmap = 0};
  s.threads = threads;
  s.frames = 1 << 16;
  s.faults = 40000;
  return s;
}

TEST(ModelTest, TheLinksBandwidthIsReachedAndNotExceeded) {
  Scenario s = free_scenario(48);
  Outcome o = simulate(s);
  EXPECT_NEAR(o.pages_per_s, 1e6 / s.machine.link.page, 0.01e6 / s.machine.link.page);
  EXPECT_EQ(o.uses.front().name, "link in");
}

TEST(ModelTest, FarFromAnyLimitThroughputIsThreadsByLatency) {
  for (unsigned threads : {1u, 4u, 8u}) {
    Scenario s = free_scenario(threads);
    s.work.map = 2;
    s.work.signal = 3;
    s.machine.link.page = 1e-6;
    Outcome o = simulate(s);
    double fault = 3.9 + 2 + 3;
    EXPECT_NEAR(o.pages_per_s, threads / fault * 1e6, 0.01e6 * threads / fault) << threads;
    EXPECT_NEAR(o.mean_us, fault, 0.1);
  }
}

TEST(ModelTest, EvictorsLimitThroughputToWhatTheyEvict) {
  Scenario s = free_scenario(32);
  s.design.evictors = 2;
  s.work.unmap = 1;
  Outcome o = simulate(s);
  EXPECT_NEAR(o.pages_per_s, 2e6, 0.1e6);
  EXPECT_GT(o.evictor_busy, 0.95);
}

TEST(ModelTest, ASerialLockLimitsThroughputToItsHoldTime) {
  Scenario s = free_scenario(32);
  s.machine.siglock_hold = 0.5;
  s.work.signal = 1;
  EXPECT_NEAR(simulate(s).pages_per_s, 2e6, 0.02e6);
}

Scenario busy_scenario() {
  Scenario s;
  s.machine = large_machine(40);
  s.work = {.faults_per_access = 0.75, .dirty = 0.5, .map = 1.5, .hold = 0.2, .write = 0.3, .release = 0.02};
  s.threads = 24;
  s.frames = 1 << 14;
  s.faults = 20000;
  s.design.evictors = 1;
  return s;
}

void expect_conserved(const Scenario& s) {
  Outcome o = simulate(s);
  EXPECT_GE(o.faults, s.faults);
  EXPECT_LE(o.max_frames, s.frames);
  EXPECT_EQ(o.queued, o.queued_at_start + o.inserted - o.taken_out);
  EXPECT_GE(o.taken_out, o.evicted);  // the last selected pages may not be unmapped yet
  EXPECT_LE(o.taken_out - o.evicted, uint64_t{s.design.batch} * (s.design.evictors + s.threads));
  // Every frame in use belongs to a near page, to a page in transfer, or to a thread that took it in advance.
  uint64_t selected = o.taken_out - o.evicted;
  EXPECT_GE(o.in_use, o.queued + o.writing + o.cached);
  EXPECT_LE(o.in_use, o.queued + o.fetching + o.writing + o.cached + selected + s.threads * (1 + s.design.frame_cache) +
                          uint64_t{s.design.batch} * (s.design.evictors + s.threads));
}

TEST(ModelTest, FramesStayInTheBudgetAndPagesAreEvictedOnce) {
  Scenario s = busy_scenario();
  expect_conserved(s);
  s.design.frame_cache = 16;
  s.design.look_before_take = true;
  s.design.frames_per_wake = 8;
  s.design.shards = 64;
  s.design.stripes = 8;
  expect_conserved(s);
  s.design.synchronous = true;
  s.design.batches = 1;
  s.design.batch = 32;
  expect_conserved(s);
  s.design = Design();
  s.work.pages_per_fault = 20.5;
  s.faults = 3000;
  expect_conserved(s);
  s.work.dirty = 1.003;  // as measured: counters of a running process
  expect_conserved(s);
}

TEST(ModelTest, TheSameSeedGivesTheSameRun) {
  Scenario s = busy_scenario();
  Outcome a = simulate(s), b = simulate(s);
  EXPECT_EQ(a.pages_per_s, b.pages_per_s);
  EXPECT_EQ(a.p99_us, b.p99_us);
  s.seed = 2;
  EXPECT_NE(simulate(s).pages_per_s, a.pages_per_s);
}

TEST(ModelTest, MoreThreadsThanCoresShareThem) {
  Scenario s = free_scenario(8);
  s.machine.cores = 2;
  s.machine.link.latency = 0;
  s.work.map = 5;
  Outcome o = simulate(s);
  EXPECT_NEAR(o.pages_per_s, 2 / 5.0 * 1e6, 0.03e6);
}

TEST(ModelTest, ThePartsOfAFaultAddUpToIt) {
  Outcome o = simulate(busy_scenario());
  double sum = std::accumulate(std::begin(o.phases), std::end(o.phases), 0.0);
  EXPECT_NEAR(sum, o.mean_us, 0.05 * o.mean_us);
}

TEST(ModelTest, AServersThreadsLimitThroughputToWhatTheyServe) {
  Scenario s = free_scenario(32);
  s.machine.link = {.serve = 1, .serve_page = 1, .latency = 10, .page = 0.01};
  s.machine.servers = 4;
  Outcome o = simulate(s);
  EXPECT_NEAR(o.pages_per_s, 4 / 2.0 * 1e6, 0.04e6);
  EXPECT_EQ(o.uses.front().name, "server threads");
}

TEST(ModelTest, ThreadsThatSleepLeaveTheirCores) {
  Scenario s = free_scenario(16);
  s.machine.cores = 2;
  s.machine.link = {.latency = 100, .page = 0.01};
  s.machine.wake_latency = 0;
  s.work.map = 4;
  double polling = simulate(s).pages_per_s;
  s.design.wait = Wait::kSleep;
  double sleeping = simulate(s).pages_per_s;
  EXPECT_GT(sleeping, 5 * polling);
  s.design.wait = Wait::kAdaptive;
  EXPECT_GT(simulate(s).pages_per_s, 0.8 * sleeping);
}

TEST(ModelTest, AServerOnTheSameCoresTakesTheirTime) {
  Scenario s = free_scenario(4);
  s.machine.cores = 2;
  s.machine.server_is_here = true;
  s.machine.link = {.serve = 3, .serve_page = 1, .latency = 1, .page = 0};
  s.machine.wake_latency = 0;
  s.work.map = 4;
  s.design.wait = Wait::kSleep;
  Outcome o = simulate(s);
  EXPECT_GT(o.pages_per_s, 0.15e6);
  EXPECT_LE(o.pages_per_s, 1e6 / 4);  // one thread serves
}

TEST(ModelTest, FramesAreMovedWhole) {
  Scenario s = free_scenario(1);
  s.machine.link = {.latency = 10, .page = 0.001};
  s.machine.move = 5;
  s.work.pages_per_fault = 512;
  s.design.frame_pages = s.design.batch = 512;
  s.design.take_window_at_once = true;
  s.frames = 1 << 17;
  s.faults = 1000;
  expect_conserved(s);
  EXPECT_NEAR(simulate(s).mean_us, 10 + 511 * 0.001 + 5, 0.5);
}

TEST(CostsTest, SurviveAFile) {
  Costs costs;
  costs.workloads["random read"] = {.access = 0.25, .signal = 3};
  costs.here.shootdown = 7;
  costs.frames = 99;
  costs.measured.push_back({"random read", "shm", 2, 1, 4.5});
  auto read = parse_costs(to_json(costs));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_json(*read), to_json(costs));
}

TEST(CostsTest, BadFilesAreRefused) {
  EXPECT_FALSE(parse_costs(json::parse("[]")).ok());
  EXPECT_FALSE(parse_costs(json::parse("{}")).ok());
  json costs = to_json(Costs());
  costs["machine"]["line"] = -1;
  EXPECT_FALSE(parse_costs(costs).ok());
  costs = to_json(Costs());
  costs["workloads"]["random read"] = {{"map", 1}};
  EXPECT_FALSE(parse_costs(costs).ok());
}

TEST(CalibrationTest, CostsComeFromTheCountersOfARun) {
  json counters = {{"accesses", 1000},  {"faults", 500},          {"major_faults", 500}, {"prefetched", 500},
                   {"evictions", 1000}, {"dirty_evictions", 250}, {"fault_us", 1500},    {"fetch_us", 100},
                   {"map_us", 900},     {"wait_frame_us", 50},    {"wait_page_us", 50},  {"select_us", 100},
                   {"hold_us", 50},     {"unmap_us", 500},        {"write_us", 250},     {"release_us", 10}};
  json cell = {{"us", 3}, {"counters", counters}};
  WorkloadCosts w = costs_of_cell(cell, 0.5, 12.8);
  EXPECT_DOUBLE_EQ(w.faults_per_access, 0.5);
  EXPECT_DOUBLE_EQ(w.pages_per_fault, 2);
  EXPECT_DOUBLE_EQ(w.dirty, 0.25);
  EXPECT_DOUBLE_EQ(w.signal, (3000 - 1500 - 500) / 500.0);
  EXPECT_DOUBLE_EQ(w.handle, 400 / 500.0);
  EXPECT_DOUBLE_EQ(w.map, 0.9);
  EXPECT_DOUBLE_EQ(w.unmap, 0.4);
  cell["counters"]["dirty_evictions"] = 1003;
  EXPECT_DOUBLE_EQ(costs_of_cell(cell, 0.5, 12.8).dirty, 1);
}

TEST(ScalingTest, PredictsForEveryNumberOfThreadsAndShowsIt) {
  Costs costs;
  costs.workloads["random read"] = {.faults_per_access = 0.75};
  costs.frames = 1 << 14;
  costs.measured.push_back({"random read", "shm", 2, 1, 3.0});
  TestFolder folder;
  json known = {{"rows", {{{"part", "costs"}, {"costs", {to_json(costs)}}}}}};
  ASSERT_TRUE(write_file(folder.file("costs.json"), known.dump()).ok());
  const Benchmark& benchmark = *std::ranges::find(benchmarks(), std::string("scaling"), &Benchmark::name);
  Settings settings = benchmark.defaults;
  settings.threads = {4, 8}, settings.faults = 1000, settings.repetitions = 1, settings.quiet = true;
  settings.costs = folder.file("costs.json");
  Result<json> document = run_benchmark(benchmark, settings);
  ASSERT_TRUE(document.ok()) << document.status().text();
  std::map<std::string, size_t> rows;
  for (const json& row : (*document)["rows"]) rows[row["part"]]++;
  EXPECT_EQ(rows["threads"], 3u * 4 * 2);
  EXPECT_EQ(rows["validation"], 1u);
  EXPECT_EQ(rows["tiers"], 2u * 2 * 3 * 2);  // in place and RDMA; no streams were measured
  EXPECT_EQ(rows["breakdown"], 3u * 3 * kPhases);
  EXPECT_NE(text_of(benchmark, *document).find("signal lock"), std::string::npos);
  NamedFiles plots = plots_of(benchmark, *document);
  EXPECT_EQ(plots.size(), 3u);
  for (const auto& [name, svg] : plots) EXPECT_TRUE(svg.ends_with("</svg>\n")) << name;
  settings.costs = folder.file("missing.json");
  EXPECT_FALSE(run_benchmark(benchmark, settings).ok());
}

}  // namespace
}  // namespace farside::bench::scaling
