// Simulated machines: the model finds the better way for functions of every kind, from its own measurements.
#include "offload/call_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace farside::offload {
namespace {

constexpr double kPage = 4096, kMiB = 1 << 20;

// A function on a machine: what it takes in both ways.
struct Machine {
  double compute_ns;     // of the whole function
  double touched_pages;  // of its ranges, spread evenly
  double fetch_page_ns;  // a page that is read in order, or one by one
  double call_ns = 30'000, write_byte_ns = 0.5, server_slowdown = 1;

  double local(const Expected& e) const { return compute_ns + touched_pages * fetch_page_ns * e.far / e.bytes; }
  double server(const Expected& e) const { return call_ns + compute_ns * server_slowdown + e.dirty * write_byte_ns; }
};

// The share of calls from the 20th on for which the better way was chosen.
double right_choices(CallCosts& costs, const Machine& machine, const Expected& call, int calls = 200) {
  int right = 0, counted = 0;
  for (int i = 0; i < calls; i++) {
    bool server = costs.prefers_server(call);
    double local_ns = machine.local(call), server_ns = machine.server(call);
    if (server) costs.ran_on_server(call, static_cast<uint64_t>(server_ns));
    else costs.ran_locally(call, static_cast<uint64_t>(local_ns));
    if (i < 20) continue;
    counted++;
    right += server == (server_ns < local_ns) || std::max(local_ns, server_ns) < 1.1 * std::min(local_ns, server_ns);
  }
  return static_cast<double>(right) / counted;
}

Expected far_range(uint64_t function, double bytes) { return {function, bytes, 0.9 * bytes, 0}; }

TEST(CallCosts, ScansOfFarMemoryRunOnServers) {
  CallCosts costs;
  EXPECT_EQ(right_choices(costs, {30e6, 65536, 1500}, far_range(1, 256 * kMiB)), 1);
}

TEST(CallCosts, ScansOfNearMemoryRunInTheProgram) {
  CallCosts costs;
  EXPECT_GT(right_choices(costs, {30e6, 65536, 1500}, {1, 256 * kMiB, 0, 0}), 0.9);
  EXPECT_EQ(right_choices(costs, {30e6, 65536, 1500}, {2, 256 * kMiB, 0, 256 * kMiB}), 1) << "all is dirty";
}

TEST(CallCosts, ChainsRunOnServersAndSingleWordsInTheProgram) {
  CallCosts costs;
  EXPECT_GT(right_choices(costs, {1000, 8, 12'000}, far_range(1, 256 * kMiB)), 0.96);
  EXPECT_GT(right_choices(costs, {100, 1, 12'000}, far_range(2, 256 * kMiB)), 0.96);
  EXPECT_GT(right_choices(costs, {100, 1, 12'000}, far_range(3, kPage)), 0.96);
}

TEST(CallCosts, OneSlowMeasurementDoesNotDecide) {
  for (bool server_is_slow_once : {false, true}) {
    CallCosts costs;
    Expected call = far_range(1, 256 * kMiB);
    uint64_t local_ns = 70'000, server_ns = 100'000, choices = 0;
    bool slow = true;
    if (server_is_slow_once) std::swap(local_ns, server_ns);
    for (int i = 0; i < 400; i++) {
      bool server = costs.prefers_server(call);
      bool better = server == server_is_slow_once;
      uint64_t factor = better && std::exchange(slow, false) ? 2 : 1;
      if (server) costs.ran_on_server(call, server_ns * factor);
      else costs.ran_locally(call, local_ns * factor);
      if (i >= 200) choices += better;
    }
    EXPECT_GT(choices, 185u) << server_is_slow_once;
  }
}

// As on two cores: what the other way needs has fallen asleep, and one call in 20 is interrupted.
TEST(CallCosts, ColdAndInterruptedCallsDoNotDecide) {
  for (bool server_is_better : {false, true}) {
    CallCosts costs;
    Expected call = far_range(1, 256 * kMiB);
    uint64_t local_ns = server_is_better ? 80'000 : 25'000, server_ns = 50'000, choices = 0;
    bool last = true;
    for (int i = 0; i < 2000; i++) {
      bool server = costs.prefers_server(call);
      uint64_t ns = (server ? server_ns : local_ns) + (server != last ? 120'000 : 0) + (i % 20 == 7 ? 700'000 : 0);
      if (server) costs.ran_on_server(call, ns);
      else costs.ran_locally(call, ns);
      last = server;
      choices += server == server_is_better;
    }
    EXPECT_GT(choices, 1800u) << server_is_better;
  }
}

TEST(CallCosts, SlowServersAreAvoided) {
  CallCosts costs;
  EXPECT_EQ(right_choices(costs, {100e6, 65536, 500, 30'000, 0.5, 10}, far_range(1, 256 * kMiB)), 1);
}

TEST(CallCosts, TheChoiceFollowsWhatIsFar) {
  CallCosts costs;
  Machine machine = {10e6, 16384, 1500};
  EXPECT_EQ(right_choices(costs, machine, far_range(1, 64 * kMiB), 50), 1);
  EXPECT_GT(right_choices(costs, machine, {1, 64 * kMiB, 0, 0}, 50), 0.9);
  EXPECT_EQ(right_choices(costs, machine, far_range(1, 64 * kMiB), 50), 1) << "far again";
}

TEST(CallCosts, WhatFailsOnServersRunsInTheProgram) {
  CallCosts costs;
  Expected call = far_range(1, 256 * kMiB);
  ASSERT_TRUE(costs.prefers_server(call));
  costs.failed_on_server(call);
  for (int i = 0; i < 100; i++) {
    EXPECT_FALSE(costs.prefers_server(call));
    costs.ran_locally(call, 500'000'000);
  }
  EXPECT_TRUE(costs.prefers_server(far_range(2, 256 * kMiB))) << "another function";
}

TEST(CallCosts, RangesOfAnySizeAreAccepted) {
  CallCosts costs;
  Expected none = {1, 0, 0, 0};
  for (int i = 0; i < 10; i++) {
    if (costs.prefers_server(none)) costs.ran_on_server(none, 20'000);
    else costs.ran_locally(none, 100);
  }
  EXPECT_FALSE(costs.prefers_server(none)) << "no range: a call only costs";
}

}  // namespace
}  // namespace farside::offload
