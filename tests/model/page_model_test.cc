// No interleaving of small scenarios violates an invariant of docs/internals/page_states.md. If a rule is left out, the
// model detects it, which proves that the check can fail.
#include <gtest/gtest.h>

#include "expectations.h"
#include "page_model.h"

namespace farside::model {

void PrintTo(const Scenario& s, std::ostream* out) {
  for (const std::string& t : s.threads) *out << t << ' ';
  *out << s.evictors << " evictors, " << s.frames << " frames, omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundModel : public testing::TestWithParam<Scenario> {};

TEST_P(SoundModel, ViolatesNoInvariant) { expect_no_violation<PageModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundModel,
                         testing::Values(Scenario{{"wrw", "rwr"}, 1, 2, true}, Scenario{{"w", "w", "r"}, 1, 2},
                                         Scenario{{"wrwr", "rr"}, 1, 1, true}, Scenario{{"wr", "rw"}, 2, 2},
                                         Scenario{{"wrw", "drd"}, 1, 2, true}, Scenario{{"wdw", "dr"}, 1, 1},
                                         Scenario{{"wrk", "kr"}, 1, 2, true}, Scenario{{"wrwr", "f"}, 1, 2, true},
                                         Scenario{{"wr", "fr"}, 2, 2}, Scenario{{"w", "rw", "f"}, 1, 2},
                                         Scenario{{"rw", "ffw"}, 1, 2}, Scenario{{"wkr", "fr"}, 1, 2},
                                         Scenario{{"wdw", "f"}, 1, 2}, Scenario{{"wrw", "sr"}, 1, 2},
                                         Scenario{{"wsw", "f"}, 1, 2}, Scenario{{"ds", "sw"}, 1, 2},
                                         Scenario{{"wzr", "r"}, 1, 2, true}, Scenario{{"wzwz", "w"}, 1, 1},
                                         Scenario{{"wrzw", "f"}, 1, 2}, Scenario{{"wz", "rz"}, 2, 2},
                                         Scenario{{"wzr", "fw"}, 1, 1}, Scenario{{"wz", "dr"}, 1, 2}));

class BrokenModel : public testing::TestWithParam<Scenario> {};

TEST_P(BrokenModel, IsDetected) { expect_violation<PageModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenModel,
                         testing::Values(Scenario{{"rwr", "rr"}, 1, 2, false, Broken::kNoUpgradingBit},
                                         Scenario{{"wwr", "f"}, 1, 2, false, Broken::kNoProtectionAfterFork},
                                         Scenario{{"wwr", "f"}, 1, 2, false, Broken::kNoCopyInUpgrade},
                                         Scenario{{"wwr", "f"}, 1, 2, false, Broken::kNoPauseAtFork},
                                         Scenario{{"wrw", "f"}, 1, 2, false, Broken::kNoGateAtFork},
                                         Scenario{{"wr", "d"}, 1, 2, false, Broken::kDropSkipsUntouched},
                                         Scenario{{"wdwr"}, 1, 2, false, Broken::kDropDoesNotWait},
                                         Scenario{{"wdwr"}, 1, 2, false, Broken::kUnqueueAfterReading},
                                         Scenario{{"kr"}, 1, 2, false, Broken::kEvictorIgnoresPins},
                                         Scenario{{"wr"}, 1, 2, false, Broken::kHoldAfterUnmap},
                                         Scenario{{"ww", "wsr"}, 1, 2, false, Broken::kSealWithoutProtection},
                                         Scenario{{"kr", "f"}, 1, 2, false, Broken::kForkProtectsPinned},
                                         Scenario{{"wzr", "f"}, 1, 2, false, Broken::kCommitIgnoresCow},
                                         Scenario{{"wz", "r"}, 1, 2, false, Broken::kCommitDoesNotInsert},
                                         Scenario{{"wrwzr", "r"}, 1, 1, false, Broken::kFreedKeepsCopy}));

}  // namespace
}  // namespace farside::model
