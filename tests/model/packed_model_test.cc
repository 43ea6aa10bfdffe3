// No interleaving of a client's accesses to a page with the packer gives a wrong content. If a rule is left out, the
// model detects it.
#include "packed_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const PackingScenario& s, std::ostream* out) {
  *out << s.operations << ", " << s.packs << " packs, " << s.moves << " moves, " << s.returns
       << " returns, omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundPacking : public testing::TestWithParam<PackingScenario> {};

TEST_P(SoundPacking, ViolatesNoInvariant) { expect_no_violation<PackedModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundPacking,
                         testing::Values(PackingScenario{"WRWR", 1, 0}, PackingScenario{"WRWR", 2, 1},
                                         PackingScenario{"WPR", 2, 1}, PackingScenario{"WRPRWR", 3, 2},
                                         PackingScenario{"WDRWR", 2, 1}, PackingScenario{"WDPRWR", 3, 2},
                                         PackingScenario{"WRRRRR", 2, 3}, PackingScenario{"PRPRPR", 3, 3},
                                         PackingScenario{"WRRPR", 3, 1, BrokenPacking::kNothing, 2},
                                         PackingScenario{"WDPRWR", 3, 1, BrokenPacking::kNothing, 2}));

class BrokenPackingTest : public testing::TestWithParam<PackingScenario> {};

TEST_P(BrokenPackingTest, IsDetected) { expect_violation<PackedModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenPackingTest,
                         testing::Values(PackingScenario{"WR", 1, 0, BrokenPacking::kNoCheckAfterRead},
                                         PackingScenario{"WWR", 1, 0, BrokenPacking::kWritersDoNotWait},
                                         PackingScenario{"WWR", 1, 0, BrokenPacking::kFreesWithoutClaim},
                                         PackingScenario{"WR", 1, 0, BrokenPacking::kNoWritingState},
                                         PackingScenario{"WPR", 1, 0, BrokenPacking::kClaimsBeforeUnpacking},
                                         PackingScenario{"WRW", 1, 0, BrokenPacking::kNotesUseWhilePunching},
                                         PackingScenario{"WWR", 1, 1, BrokenPacking::kMovesWithoutClaim},
                                         PackingScenario{"WR", 1, 2, BrokenPacking::kComparesPositionsOnly},
                                         PackingScenario{"WR", 2, 0, BrokenPacking::kReturnsAreNotCounted, 1},
                                         PackingScenario{"WPR", 2, 0, BrokenPacking::kReturnsAreNotCounted, 1},
                                         PackingScenario{"WWR", 1, 0, BrokenPacking::kReturnsWithoutClaim, 1}));

}  // namespace
}  // namespace farside::model
