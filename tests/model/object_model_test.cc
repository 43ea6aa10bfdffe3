// No interleaving of small scenarios violates an invariant of docs/internals/object_paths.md. If a rule is left out,
// the model detects it.
#include "object_model.h"

#include <gtest/gtest.h>

#include "expectations.h"

namespace farside::model {

void PrintTo(const ObjectScenario& s, std::ostream* out) {
  for (const std::string& t : s.threads) *out << t << ' ';
  *out << "omitted rule: " << static_cast<int>(s.broken) << ", handler: " << static_cast<int>(s.handler);
}

namespace {

class SoundObjects : public testing::TestWithParam<ObjectScenario> {};

TEST_P(SoundObjects, ViolateNoInvariant) { expect_no_violation<ObjectModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Scenarios, SoundObjects,
                         testing::Values(ObjectScenario{{"wr", "rw", "n"}}, ObjectScenario{{"wrw", "rwr"}},
                                         ObjectScenario{{"w", "w", "w"}}, ObjectScenario{{"wmrmw", "nn"}},
                                         ObjectScenario{{"mwmr", "n", "n"}}, ObjectScenario{{"wmx", "n", "n"}},
                                         ObjectScenario{{"wr", "rn", "nw"}},
                                         ObjectScenario{{"wrw", "rn"}, BrokenObjects::kNothing, Handler::kWrites},
                                         ObjectScenario{{"wmwr", "n"}, BrokenObjects::kNothing, Handler::kWrites},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kNothing, Handler::kDrops},
                                         ObjectScenario{{"wmr", "n"}, BrokenObjects::kNothing, Handler::kDrops}));

class BrokenObjectsTest : public testing::TestWithParam<ObjectScenario> {};

TEST_P(BrokenObjectsTest, AreDetected) { expect_violation<ObjectModel>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rules, BrokenObjectsTest,
                         testing::Values(ObjectScenario{{"wr", "rw", "n"}, BrokenObjects::kNoFirstGrace},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kNoSecondGrace},
                                         ObjectScenario{{"wr", "ww"}, BrokenObjects::kIgnoresHolders},
                                         ObjectScenario{{"wr", "ww"}, BrokenObjects::kNoMark},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kNoReload},
                                         ObjectScenario{{"wmr"}, BrokenObjects::kMoveWithoutLock},
                                         ObjectScenario{{"wmr"}, BrokenObjects::kHeaderNoOverride},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kReuseAtOnce},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kNoSecondGrace, Handler::kWrites},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kIgnoresHolders, Handler::kWrites},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kHandlerNoMark, Handler::kWrites},
                                         ObjectScenario{{"wr", "rw"}, BrokenObjects::kNoHandler, Handler::kWrites}));

}  // namespace
}  // namespace farside::model
