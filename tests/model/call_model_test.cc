// No interleaving of calls, accesses and evictions shows a function or a thread an old value, or loses a write. If a
// rule is left out, the model detects it.
#include "call_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const CallScenario& s, std::ostream* out) {
  for (const std::string& t : s.threads) *out << t << ' ';
  *out << s.evictions << " evictions, omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundCalls : public testing::TestWithParam<CallScenario> {};

TEST_P(SoundCalls, ViolatesNoInvariant) { expect_no_violation<CallModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundCalls,
                         testing::Values(CallScenario{{"wcwc", "wc"}, 2}, CallScenario{{"ccwc", "wrc"}, 2},
                                         CallScenario{{"wxr", "wcr"}, 2}, CallScenario{{"wxwx", "xwr"}, 2},
                                         CallScenario{{"wbwr", "wcr"}, 2}, CallScenario{{"kckc", "wc"}, 1},
                                         CallScenario{{"kxk", "wcr"}, 1}, CallScenario{{"bwcr", "kxr"}, 2},
                                         CallScenario{{"cwcwc", "cwc"}, 1}));

class BrokenCalls : public testing::TestWithParam<CallScenario> {};

TEST_P(BrokenCalls, IsDetected) { expect_violation<CallModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenCalls,
                         testing::Values(CallScenario{{"rcwc"}, 1, BrokenCall::kNoUnsettleAtUpgrade},
                                         CallScenario{{"cwc", "w"}, 1, BrokenCall::kNoUnsettleAtClaim},
                                         CallScenario{{"wcwc", "rcc"}, 1, BrokenCall::kUnsettleBeforeChange},
                                         CallScenario{{"rwc", "c"}, 1, BrokenCall::kSettleWithoutTicket},
                                         CallScenario{{"wc", "cc"}, 1, BrokenCall::kSameTickets},
                                         CallScenario{{"wc", "c"}, 1, BrokenCall::kTrustTickets},
                                         CallScenario{{"kckc", "wc"}, 1, BrokenCall::kSettleDirty},
                                         CallScenario{{"wc", "c"}, 1, BrokenCall::kScanSkipsOwned},
                                         CallScenario{{"wc", "wc"}, 1, BrokenCall::kNoProtection},
                                         CallScenario{{"wc", "wc"}, 1, BrokenCall::kCleanBeforeWrite},
                                         CallScenario{{"kc", "wc"}, 1, BrokenCall::kPinnedBecomesClean},
                                         CallScenario{{"wc"}, 1, BrokenCall::kCallBeforeWrite},
                                         CallScenario{{"rwcr", "wc"}, 1, BrokenCall::kNoUpgradingBit},
                                         CallScenario{{"wxr", "w"}, 1, BrokenCall::kWrittenStaysMapped},
                                         CallScenario{{"wx"}, 1, BrokenCall::kWrittenIsNotStored},
                                         CallScenario{{"wxr", "wr"}, 1, BrokenCall::kWrittenIsNotOwned},
                                         CallScenario{{"x", "kr"}, 1, BrokenCall::kWrittenIgnoresPins},
                                         CallScenario{{"wx", "wr"}, 1, BrokenCall::kStoredWithoutProtection},
                                         CallScenario{{"bwr"}, 2, BrokenCall::kBreakDoesNotWait},
                                         CallScenario{{"wxr"}, 1, BrokenCall::kGiveBackKeepsOldMapping}));

}  // namespace
}  // namespace farside::model
