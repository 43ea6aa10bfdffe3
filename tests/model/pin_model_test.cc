// System calls that pin pages never wait for each other for ever, and near memory exceeds its limit by no more than
// what they pin. If a rule is left out, the model detects it.
#include "pin_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const PinScenario& s, std::ostream* out) {
  *out << s.threads << " threads, " << s.calls << " calls of " << s.pins << " pins, " << s.frames << " frames, "
       << s.metadata << " of metadata, omitted rule: " << static_cast<int>(s.broken);
}

namespace {

class SoundPins : public testing::TestWithParam<PinScenario> {};

TEST_P(SoundPins, ViolateNoInvariant) { expect_no_violation<PinModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundPins,
                         testing::Values(PinScenario{3, 2, 1, 3, 0}, PinScenario{2, 3, 1, 3, 1},
                                         PinScenario{2, 2, 2, 2, 2}));

class BrokenPinsTest : public testing::TestWithParam<PinScenario> {};

TEST_P(BrokenPinsTest, IsDetected) { expect_violation<PinModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenPinsTest,
                         testing::Values(PinScenario{3, 2, 1, 3, 0, BrokenPins::kNoRelief},
                                         PinScenario{2, 3, 1, 3, 2, BrokenPins::kReliefOfTheLimit},
                                         PinScenario{2, 3, 1, 3, 0, BrokenPins::kReliefOnce},
                                         PinScenario{2, 3, 1, 3, 0, BrokenPins::kNeverLowered}));

}  // namespace
}  // namespace farside::model
