// No interleaving of workers that sleep and wake each other loses a wake-up or reports a false deadlock. If a rule is
// left out, the model detects it.
#include "sleep_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const SleepScenario& s, std::ostream* out) {
  *out << s.workers << " workers, ";
  for (const std::string& f : s.fibers) *out << f << ' ';
  *out << "omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundSleep : public testing::TestWithParam<SleepScenario> {};

TEST_P(SoundSleep, ViolatesNoInvariant) { expect_no_violation<SleepModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundSleep,
                         testing::Values(SleepScenario{2, {"sy", ""}}, SleepScenario{2, {"sys", "", ""}},
                                         SleepScenario{2, {"se", ""}}, SleepScenario{2, {"ye"}},
                                         SleepScenario{2, {"se", "e"}}, SleepScenario{3, {"s", ""}}));

class BrokenSleepTest : public testing::TestWithParam<SleepScenario> {};

TEST_P(BrokenSleepTest, IsDetected) { expect_violation<SleepModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenSleepTest,
                         testing::Values(SleepScenario{2, {"s", ""}, BrokenSleep::kWakerCounts},
                                         SleepScenario{2, {"se", ""}, BrokenSleep::kNoTest},
                                         SleepScenario{2, {"e"}, BrokenSleep::kHandlesAsleep},
                                         SleepScenario{2, {"e"}, BrokenSleep::kNoSecondTest},
                                         SleepScenario{2, {"s", ""}, BrokenSleep::kNoWakeAtTheEnd}));

}  // namespace
}  // namespace farside::model
