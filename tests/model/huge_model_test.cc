// No interleaving of small scenarios violates an invariant of docs/internals/huge_pages.md. If a rule is left out, the
// model detects it, which proves that the check can fail.
#include "huge_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const HugeScenario& s, std::ostream* out) {
  for (const std::string& t : s.threads) *out << t << ' ';
  *out << s.start << ", " << s.huge_evictors << " huge page evictors, " << s.pool
       << " frames in the pool, omitted rule: " << static_cast<int>(s.broken);
}

namespace {

using Scenario = HugeScenario;
using Rule = BrokenHuge;

// The kernel may refuse whatever it is asked.
Scenario refusing(Scenario s) {
  s.refuses = s.stops = s.holds_fail = true;
  return s;
}

class SoundHuge : public testing::TestWithParam<Scenario> {};

TEST_P(SoundHuge, ViolatesNoInvariant) { expect_no_violation<HugeModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Scenarios, SoundHuge,
    testing::Values(refusing({.threads = {"s*x0r1s*r0"}}), refusing({.threads = {"t*z0r0w0"}}),
                    refusing({.threads = {"s*r0", "w1"}}), refusing({.threads = {"w0s*", "r1"}}),
                    refusing({.threads = {"s*b0o0", "w0"}}), refusing({.threads = {"s*r0", "d0w0"}}),
                    refusing({.threads = {"s*r0", "d*r1"}}), refusing({.threads = {"s*k0", "r1"}}),
                    refusing({.threads = {"s*", "k1r0"}}), refusing({.threads = {"s*y*w0s*r0"}}),
                    refusing({.threads = {"s*w0", "y*"}}), refusing({.threads = {"s*k0", "y*"}}),
                    refusing({.threads = {"f*w0r1", "r1"}, .start = "uu"}),
                    refusing({.threads = {"s*w0", "w1"}, .start = "uf"}), refusing({.threads = {"a*j*", "r0"}}),
                    Scenario{.threads = {"p*r0s*", "x1"}}, Scenario{.threads = {"s*x0", "x1"}, .huge_evictors = 2},
                    Scenario{.threads = {"w1s*b0", "x1"}}, Scenario{.threads = {"s*w0", "s*"}, .pool = 2},
                    Scenario{.threads = {"s*", "s*", "w0"}, .evicts_pages = false, .pool = 2}));

class BrokenHugeTest : public testing::TestWithParam<Scenario> {};

TEST_P(BrokenHugeTest, IsDetected) { expect_violation<HugeModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    In, BrokenHugeTest,
    testing::Values(Scenario{.threads = {"s*"}, .broken = Rule::kPushBeforePublish},
                    Scenario{.threads = {"s*", "w0"}, .broken = Rule::kPublishClean},
                    Scenario{.threads = {"s*", "w0"}, .broken = Rule::kPublishWithoutCow},
                    Scenario{.threads = {"w0s*", "r1"}, .broken = Rule::kSumOfChangedPage},
                    Scenario{.threads = {"s*", "s*"}, .evicts_pages = false, .pool = 2, .broken = Rule::kSharedSums},
                    Scenario{.threads = {"w0s*", "w0"}, .broken = Rule::kCopyBeforeProtection},
                    Scenario{.threads = {"s*", "k0"}, .broken = Rule::kClaimNearPinned},
                    Scenario{.threads = {"r0s*", "w0"}, .broken = Rule::kClaimNearUpgrading},
                    Scenario{.threads = {"s*", "s*"}, .pool = 2, .broken = Rule::kRevertDoesNotInsert},
                    Scenario{.threads = {"s*", "s*"}, .pool = 2, .broken = Rule::kRevertKeepsHuge},
                    Scenario{.threads = {"s*", "r0"}, .refuses = true, .broken = Rule::kCopyInAll},
                    Scenario{.threads = {"s*", "w0"}, .stops = true, .broken = Rule::kCopyInForgetsStores},
                    Scenario{.threads = {"a*j*", "r0"}, .broken = Rule::kNoHelp}));

INSTANTIATE_TEST_SUITE_P(FirstWrite, BrokenHugeTest,
                         testing::Values(Scenario{.threads = {"s*", "x0w1"}, .broken = Rule::kLiftBeforeOwn}));

INSTANTIATE_TEST_SUITE_P(
    Out, BrokenHugeTest,
    testing::Values(Scenario{.threads = {"s*d*f*"}, .pool = 2, .broken = Rule::kClearAfterLook},
                    Scenario{.threads = {"s*", "k0"}, .broken = Rule::kTakePinned},
                    Scenario{.threads = {"s*", "w0"}, .broken = Rule::kTakeUpgrading},
                    Scenario{.threads = {"s*y*"}, .broken = Rule::kMoveShared},
                    Scenario{.threads = {"s*d0r0"}, .refuses = true, .broken = Rule::kUnclaimDoesNotInsert},
                    Scenario{.threads = {"s*w0"}, .stops = true, .broken = Rule::kMovedBackClean},
                    Scenario{.threads = {"s*", "k0"}, .broken = Rule::kNoPush},
                    Scenario{.threads = {"s*"}, .refuses = true, .broken = Rule::kNoBreakUp},
                    Scenario{.threads = {"s*", "k0"}, .huge_evictors = 2, .broken = Rule::kPushBeforeUnclaim},
                    Scenario{.threads = {"s*"}, .refuses = true, .broken = Rule::kBreakUpBeforeUnclaim},
                    Scenario{.threads = {"s*"}, .refuses = true, .broken = Rule::kBreakUpDoesNotInsert},
                    Scenario{.threads = {"s*w0b0o0", "r1"}, .broken = Rule::kSumWithoutHuge}));

INSTANTIATE_TEST_SUITE_P(
    Others, BrokenHugeTest,
    testing::Values(Scenario{.threads = {"s*w0b0o0", "r1"}, .broken = Rule::kWriteBackKeepsHuge},
                    Scenario{.threads = {"s*w0b0"}, .broken = Rule::kWriteBackDoesNotInsert},
                    Scenario{.threads = {"s*w0z0", "r1"}, .broken = Rule::kFreedKeepsHuge},
                    Scenario{.threads = {"w0s*", "r1"}, .holds_fail = true, .broken = Rule::kUnheldKeepsHuge}));

}  // namespace
}  // namespace farside::model
