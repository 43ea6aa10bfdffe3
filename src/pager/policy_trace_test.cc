// Compares the simulator of policies with the real pager, and the real pager's fetches with what must come.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "pager/policy/simulator.h"
#include "pager/test_support.h"

namespace farside::pager {
namespace {

// The share of accesses that hit in the real pager, and in the simulation with as many near pages as were used.
struct RealCase {
  PolicyKind kind;
  unsigned evictors;
};
class RealPager : public testing::TestWithParam<RealCase> {};

TEST_P(RealPager, HasTheSimulatedHitRate) {
  constexpr PageIndex kRealPages = 32 * kMiB / kPageSize;
  Options options;
  options.local = {8 * kMiB, 0};
  options.space = kGiB;
  auto [kind, evictors] = GetParam();
  options.policy = kind;
  options.evictors = evictors;
  options.prefetch = false;
  PagerFixture pager(options, new LocalStore(kGiB, kGiB, true), Delivery::kSignal);
  std::byte* memory = pager.allocate(kRealPages * kPageSize);
  memset(memory, 1, kRealPages * kPageSize);
  Trace trace = zipf_trace(kRealPages, 0.99, 200000, 5);
  uint64_t near = 0, faults = pager->stats().get(Counter::kMajorFaults);
  for (size_t i = 0; i < trace.accesses.size(); i++) {
    *reinterpret_cast<volatile std::byte*>(memory + trace.accesses[i] * kPageSize);
    if (i % 1000 == 0) near += pager->stats().near_pages;
  }
  faults = pager->stats().get(Counter::kMajorFaults) - faults;
  near /= trace.accesses.size() / 1000;
  double real = 100 - 100 * static_cast<double>(faults) / static_cast<double>(trace.accesses.size());
  double simulated = 100 * simulate_policy(trace, near, kind, Known::kFaults).hit_rate();
  printf("%-14s  %u evictors  real %.1f  simulated %.1f\n", policy_name(kind).data(), evictors, real, simulated);
  EXPECT_NEAR(real, simulated, 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RealPager,
                         testing::Values(RealCase{PolicyKind::kFifo, 1}, RealCase{PolicyKind::kLru, 1},
                                         RealCase{PolicyKind::kLru, 4}, RealCase{PolicyKind::kTwoQueue, 1},
                                         RealCase{PolicyKind::kTwoQueue, 4}),
                         [](const auto& c) {
                           std::string name(policy_name(c.param.kind));
                           std::erase(name, '-');
                           return name + std::to_string(c.param.evictors);
                         });

class HotSetTest : public testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(NearMiB, HotSetTest, testing::Values(16, 64), testing::PrintToStringParamName());

// What must come is the stream's pages, and each hot page once. With 16 MiB by pages, with 64 by huge pages.
TEST_P(HotSetTest, StaysNearBesideAStream) {
  const uint64_t near = GetParam() * kMiB;
  const auto kHot = static_cast<PageIndex>(near / 4 * 3 / kPageSize),
             kStream = static_cast<PageIndex>(3 * near / kPageSize);
  constexpr int kPasses = 3;
  Options options;
  options.local = {near, 0};
  options.space = kGiB;
  PagerFixture pager(options, new LocalStore(kGiB, kGiB, true), Delivery::kSignal);
  std::byte* memory = pager.allocate((kHot + kStream) * kPageSize);
  memset(memory, 1, (kHot + kStream) * kPageSize);
  auto fetched = [&] {
    Stats stats = pager->stats();
    uint64_t by_huge = stats.get(Counter::kHugeFetched) * (kHugePages - 1);
    return stats.get(Counter::kMajorFaults) + stats.get(Counter::kPrefetched) + by_huge;
  };
  auto use = [&](PageIndex page) { *reinterpret_cast<volatile std::byte*>(memory + page * kPageSize); };
  uint64_t before = fetched();
  std::mt19937 random(1);
  for (PageIndex turn = 0; turn < kPasses * kStream; turn++) {
    use(kHot + turn % kStream);
    for (int i = 0; i < 20; i++) use(random() % kHot);
  }
  uint64_t came = fetched() - before;
  printf("fetched %.2f times what must come\n", static_cast<double>(came) / (kPasses * kStream + kHot));
  EXPECT_LT(came, 1.3 * (kPasses * kStream + kHot));
  Stats stats = pager->stats();
  if (stats.get(Counter::kHugeFetched) == 0) {
    EXPECT_GT(stats.get(Counter::kPrefetchUsed), stats.get(Counter::kPrefetched) / 2);
  }
  EXPECT_LE(stats.get(Counter::kPrefetchUsed), stats.get(Counter::kPrefetched));
}

}  // namespace
}  // namespace farside::pager
