// No interleaving of moves and calls lets a function miss an object, or keeps one side out for ever. If a rule is left
// out, the model detects it.
#include "move_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const MoveScenario& s, std::ostream* out) {
  for (const std::string& t : s.threads) *out << t << ' ';
  *out << "omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundMoves : public testing::TestWithParam<MoveScenario> {};

TEST_P(SoundMoves, ViolateNoInvariant) { expect_no_violation<MoveModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundMoves,
                         testing::Values(MoveScenario{{"m", "m", "cc"}}, MoveScenario{{"mm", "cc"}},
                                         MoveScenario{{"e", "m", "c"}}, MoveScenario{{"ee", "cc", "c"}},
                                         MoveScenario{{"mm", "c", "c"}}, MoveScenario{{"mm", "hh", "c"}},
                                         MoveScenario{{"me", "h", "m"}}));

class BrokenMovesTest : public testing::TestWithParam<MoveScenario> {};

TEST_P(BrokenMovesTest, AreDetected) { expect_violation<MoveModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenMovesTest,
                         testing::Values(MoveScenario{{"m", "c"}, BrokenMoves::kIgnoresCalls},
                                         MoveScenario{{"m", "c"}, BrokenMoves::kTestsFirst},
                                         MoveScenario{{"m", "c"}, BrokenMoves::kIgnoresMoves},
                                         MoveScenario{{"m", "c"}, BrokenMoves::kWritesFirst},
                                         MoveScenario{{"m", "c"}, BrokenMoves::kPermitsEarly},
                                         MoveScenario{{"m", "c"}, BrokenMoves::kEndsBeforeOwner},
                                         MoveScenario{{"m", "m", "c"}, BrokenMoves::kStaysCounted},
                                         MoveScenario{{"m", "cc"}, BrokenMoves::kStaysAnnounced},
                                         MoveScenario{{"e", "cc"}, BrokenMoves::kGivesUpAnnounced},
                                         MoveScenario{{"m", "h"}, BrokenMoves::kUsesLate}));

}  // namespace
}  // namespace farside::model
