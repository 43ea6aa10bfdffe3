// The two checks of every model: a sound scenario violates no invariant, and the same scenario with one rule left out
// does.
#pragma once
#include <gtest/gtest.h>

#include "explorer.h"

namespace farside::model {

template <typename Model, typename Scenario>
void expect_no_violation(const Scenario& scenario) {
  Model model(scenario);
  Outcome o = Explorer(model).explore();
  EXPECT_EQ(o.violation, "") << o.trace;
  EXPECT_GT(o.states, 1000u);  // guards against a model that explores nothing
  testing::Test::RecordProperty("states", static_cast<int>(o.states));
}

template <typename Model, typename Scenario>
void expect_violation(Scenario scenario) {
  Model model(scenario);
  Outcome o = Explorer(model).explore();
  EXPECT_NE(o.violation, "") << "after " << o.states << " states";
  scenario.broken = {};  // kNothing
  Model sound(scenario);
  o = Explorer(sound).explore();
  EXPECT_EQ(o.violation, "") << o.trace;  // the violation was caused by the missing rule alone
}

}  // namespace farside::model
