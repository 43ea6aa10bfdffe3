// No interleaving of writes, a repair and losses of servers leaves a holder without a write that has ended. If a rule
// is left out, the model detects it.
#include "repair_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const RepairScenario& s, std::ostream* out) {
  *out << "holders " << unsigned{s.holders} << ", " << s.writes << " writes, " << s.losses << " losses, "
       << (s.drains ? "drains, " : "") << (s.reuses ? "reuses, " : "")
       << "omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundRepair : public testing::TestWithParam<RepairScenario> {};

TEST_P(SoundRepair, ViolatesNoInvariant) { expect_no_violation<RepairModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundRepair,
                         testing::Values(RepairScenario{1, 1, 0}, RepairScenario{1, 2, 0}, RepairScenario{1, 1, 1},
                                         RepairScenario{1, 2, 2}, RepairScenario{3, 1, 1}, RepairScenario{3, 1, 2},
                                         RepairScenario{3, 2, 1}, RepairScenario{1, 1, 0, true},
                                         RepairScenario{1, 2, 0, true}, RepairScenario{1, 1, 1, true},
                                         RepairScenario{3, 1, 1, true}, RepairScenario{3, 1, 2, true},
                                         RepairScenario{3, 1, 1, false, true}, RepairScenario{3, 1, 2, false, true}));

class BrokenRepairTest : public testing::TestWithParam<RepairScenario> {};

TEST_P(BrokenRepairTest, IsDetected) { expect_violation<RepairModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenRepairTest,
                         testing::Values(RepairScenario{1, 1, 0, false, false, BrokenRepair::kNoQuietStart},
                                         RepairScenario{1, 1, 0, false, false, BrokenRepair::kNoCheckAtTheEnd},
                                         RepairScenario{1, 1, 0, false, false, BrokenRepair::kLoadsBefore},
                                         RepairScenario{1, 1, 0, false, false, BrokenRepair::kEndsAtOnce},
                                         RepairScenario{1, 1, 0, false, false, BrokenRepair::kReadsTooEarly},
                                         RepairScenario{1, 1, 0, false, false, BrokenRepair::kJoinsTooLate},
                                         RepairScenario{1, 1, 0, true, false, BrokenRepair::kEmptiesTooEarly},
                                         RepairScenario{1, 1, 0, true, false, BrokenRepair::kEmptiesAtOnce},
                                         RepairScenario{1, 1, 0, true, false, BrokenRepair::kKeepsOldReads},
                                         RepairScenario{3, 1, 1, false, true, BrokenRepair::kTrustsNumbers},
                                         RepairScenario{3, 1, 1, false, true, BrokenRepair::kReusesTooEarly}));

}  // namespace
}  // namespace farside::model
