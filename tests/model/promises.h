// The two checks that every model stands: a sound scenario keeps all promises, and one that leaves a rule out does not.
#pragma once
#include <gtest/gtest.h>

#include "explorer.h"

namespace farside::model {

template <typename Model, typename Scenario>
void expect_every_promise_kept(const Scenario& scenario) {
  Model model(scenario);
  Outcome o = Explorer(model).explore();
  EXPECT_EQ(o.violation, "") << o.trace;
  EXPECT_GT(o.states, 1000u);  // it did explore something
  testing::Test::RecordProperty("states", static_cast<int>(o.states));
}

template <typename Model, typename Scenario>
void expect_found_out(Scenario scenario) {
  Model model(scenario);
  Outcome o = Explorer(model).explore();
  EXPECT_NE(o.violation, "") << "after " << o.states << " states";
  scenario.broken = {};  // nothing
  Model sound(scenario);
  o = Explorer(sound).explore();
  EXPECT_EQ(o.violation, "") << o.trace;  // it was the missing rule and nothing else
}

}  // namespace farside::model
