// Measures how good the policies' choices are: hit rates on synthetic traces, beside exact LRU and Belady's optimum.
// Prints the table of docs/internals/policies.md. One thread and hundreds of millions of accesses: not run by sanitized
// builds, which run policy_trace_test.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "pager/policy/published.h"
#include "pager/policy/simulator.h"

namespace farside::pager {
namespace {

constexpr PageIndex kPages = 8192;
constexpr size_t kLength = 400000;
constexpr int kShares[] = {10, 25, 50, 75, 90};  // percent of the pages that may be near

struct Row {
  const char* name;
  PolicyKind kind;
  Known known;
};
constexpr Row kRows[] = {
    {"fifo", PolicyKind::kFifo, Known::kFaults},        {"2q", PolicyKind::kTwoQueue, Known::kFaults},
    {"2q, hints", PolicyKind::kTwoQueue, Known::kUses}, {"lru", PolicyKind::kLru, Known::kFaults},
    {"lru, hints", PolicyKind::kLru, Known::kUses},     {"priority, hints", PolicyKind::kPriority, Known::kPriority},
};

// Percent of hits, by trace, policy and share.
class HitRates : public testing::Test {
 protected:
  using Rates = std::map<int, double>;

  static void SetUpTestSuite() {
    for (const Trace& trace :
         {zipf_trace(kPages, 0.8, kLength, 1), zipf_trace(kPages, 0.99, kLength, 2),
          scan_zipf_trace(kPages, 0.99, kLength, 3), loop_trace(kPages, kLength), phases_trace(kPages, 7, kLength, 4),
          hot_stream_trace(kPages, kPages / 5, 50, 10 * kLength, 4)}) {
      print_head(trace);
      auto simulate = [&](const char* name, auto simulation) {
        Rates& rates = s_rates[trace.name][name];
        for (int share : kShares) rates[share] = 100 * simulation(uint64_t{kPages} * share / 100).hit_rate();
        print_row(name, rates);
      };
      for (const Row& r : kRows)
        simulate(r.name, [&](uint64_t near) { return simulate_policy(trace, near, r.kind, r.known); });
      simulate("kernel's lists", [&](uint64_t near) { return simulate_kernel_lists(trace, near); });
      simulate("ARC", [&](uint64_t near) { return simulate_arc(trace, near, Uses::kSeen); });
      simulate("ARC, faults", [&](uint64_t near) { return simulate_arc(trace, near, Uses::kHidden); });
      simulate("S3-FIFO", [&](uint64_t near) { return simulate_s3_fifo(trace, near, Uses::kSeen); });
      simulate("S3-FIFO, faults", [&](uint64_t near) { return simulate_s3_fifo(trace, near, Uses::kHidden); });
      simulate("exact LRU", [&](uint64_t near) { return simulate_exact_lru(trace, near); });
      simulate("optimum", [&](uint64_t near) { return simulate_optimum(trace, near); });
    }
  }

  static void print_head(const Trace& trace) {
    printf("%-24s", trace.name.c_str());
    for (int share : kShares) printf("%7d%%", share);
    printf("\n");
  }
  static void print_row(const char* name, const Rates& rates) {
    printf("  %-22s", name);
    for (int share : kShares) printf("%8.1f", rates.at(share));
    printf("\n");
  }

  static double rate(const char* trace, const char* policy, int share) {
    return s_rates.at(trace).at(policy).at(share);
  }

  static inline std::map<std::string, std::map<std::string, Rates>> s_rates;
};

TEST_F(HitRates, NothingBeatsTheOptimum) {
  for (auto& [trace, policies] : s_rates) {
    for (auto& [policy, rates] : policies) {
      for (int share : kShares)
        EXPECT_LE(rates.at(share), policies.at("optimum").at(share)) << trace << " " << policy << share;
    }
  }
}

TEST_F(HitRates, WithHintsPoliciesReachExactLru) {
  for (const char* trace : {"zipf 0.80", "zipf 0.99"}) {
    for (int share : kShares) {
      double exact = rate(trace, "exact LRU", share);
      EXPECT_GT(rate(trace, "priority, hints", share), exact - 0.5) << trace << share;
      EXPECT_GT(rate(trace, "lru, hints", share), exact - 0.5) << trace << share;
      EXPECT_GT(rate(trace, "priority, hints", share), rate(trace, "fifo", share) + 0.5) << trace << share;
    }
    // New pages must be used twice: better than exact LRU where memory is short.
    EXPECT_GT(rate(trace, "lru, hints", 10), rate(trace, "exact LRU", 10) + 2) << trace;
  }
}

TEST_F(HitRates, LruLearnsFromFaultsAlone) {
  for (const char* trace : {"zipf 0.80", "zipf 0.99"}) {
    for (int share : {10, 25, 50}) {
      EXPECT_GT(rate(trace, "lru", share), rate(trace, "fifo", share) + 1) << trace << share;
    }
  }
}

TEST_F(HitRates, AScanDisplacesLittleWithLruAndNothingWithPriority) {
  for (int share : {10, 25}) {
    EXPECT_GT(rate("scan + zipf 0.99", "lru, hints", share), rate("scan + zipf 0.99", "exact LRU", share) + 4) << share;
    EXPECT_GT(rate("scan + zipf 0.99", "priority, hints", share), rate("scan + zipf 0.99", "lru, hints", share))
        << share;
  }
  // Half of the accesses go to the half of the pages that fits.
  EXPECT_GT(rate("scan + zipf 0.99", "priority, hints", 50), 48);
}

TEST_F(HitRates, OfALoopLargerThanMemoryTwoQueuesKeepAPart) {
  for (int share : kShares) {
    for (const Row& r : kRows) {
      if (r.kind != PolicyKind::kTwoQueue) EXPECT_LT(rate("loop", r.name, share), 1) << r.name;
      else EXPECT_GT(rate("loop", r.name, share), 0.7 * share) << share;
    }
    EXPECT_NEAR(rate("loop", "optimum", share), share, 2.5);
  }
}

TEST_F(HitRates, TwoQueuesNeedNoHints) {
  for (const char* trace : {"zipf 0.80", "zipf 0.99"}) {
    for (int share : {10, 25, 50}) EXPECT_GT(rate(trace, "2q", share), rate(trace, "lru", share)) << trace << share;
    for (int share : {75, 90}) EXPECT_GT(rate(trace, "2q", share), rate(trace, "fifo", share)) << trace << share;
    EXPECT_GT(rate(trace, "2q", 10), rate(trace, "exact LRU", 10) + 2) << trace;
  }
}

// The hot set is a fifth of the pages.
TEST_F(HitRates, AStreamDoesNotDisplaceAHotSetFromTwoQueues) {
  for (int share : {10, 25, 50})
    EXPECT_GT(rate("scan + zipf 0.99", "2q", share), rate("scan + zipf 0.99", "exact LRU", share) + 8) << share;
  for (int share : {25, 50, 75, 90})
    EXPECT_GT(rate("hot set beside a stream", "2q", share), rate("hot set beside a stream", "exact LRU", share) - 0.6)
        << share;
  EXPECT_GT(rate("hot set beside a stream", "2q", 25), rate("hot set beside a stream", "fifo", 25) + 5);
}

// What their papers promise, and what is left of it if uses are hidden.
TEST_F(HitRates, PublishedPoliciesResistScans) {
  for (int share : {10, 25, 50}) {
    double exact = rate("scan + zipf 0.99", "exact LRU", share);
    for (const char* policy : {"ARC", "S3-FIFO", "kernel's lists"})
      EXPECT_GT(rate("scan + zipf 0.99", policy, share), exact + 3) << policy << share;
    for (const char* policy : {"ARC", "S3-FIFO"})
      EXPECT_GT(rate("zipf 0.99", policy, share), rate("zipf 0.99", "exact LRU", share) - 0.5) << policy << share;
    EXPECT_GT(rate("scan + zipf 0.99", "2q", share), rate("scan + zipf 0.99", "S3-FIFO, faults", share) - 2) << share;
  }
}

// A quarter of the pages is used at a time. Each change of the phase costs two fetches of a page instead of one.
TEST_F(HitRates, TwoQueuesFollowAChangeOfTheWorkingSet) {
  EXPECT_GT(rate("phases", "2q", 25), rate("phases", "exact LRU", 25) - 5);
  for (int share : {50, 75, 90})
    EXPECT_GT(rate("phases", "2q", share), rate("phases", "exact LRU", share) - 1) << share;
}

// A reference string of textbooks, whose numbers of faults with three frames are known.
TEST(Simulator, MatchesTextbookResults) {
  Trace trace{"textbook", 8, 8, {7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1}};
  EXPECT_EQ(simulate_exact_lru(trace, 3).misses, 12u);
  EXPECT_EQ(simulate_optimum(trace, 3).misses, 9u);
  EXPECT_EQ(simulate_probation(trace, 3, 0).misses, 15u);  // equals first in, first out
}

}  // namespace
}  // namespace farside::pager
