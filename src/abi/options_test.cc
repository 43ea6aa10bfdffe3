#include "abi/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace farside {
namespace {

TEST(Options, ReadsTheEnvironment) {
  Options o;
  const char* env[] = {"PATH=/bin", "FARSIDE_LOCAL=25%", "FARSIDE_FAULT=handler", "FARSIDE_EVICTORS=2", nullptr};
  ASSERT_TRUE(options_from_environment(env, &o).ok());
  EXPECT_EQ(o.local.share, 0.25);
  EXPECT_EQ(o.fault, FaultMode::kHandler);
  EXPECT_EQ(o.evictors, 2u);
}

TEST(Options, PoliciesHaveNames) {
  for (const char* name : {"2q", "fifo", "lru", "priority"}) {
    Options o;
    EXPECT_TRUE(set_option(&o, "FARSIDE_POLICY", name).ok());
    EXPECT_EQ(policy_name(o.policy), name);
  }
  PolicyKind kind;
  EXPECT_FALSE(policy_from_name("random", &kind));
}

TEST(Options, SuggestsTheNearestOption) {
  Options o;
  const char* env[] = {"FARSIDE_LOCALE=25%", nullptr};
  Status s = options_from_environment(env, &o);
  EXPECT_FALSE(s.ok());
  EXPECT_NE(strstr(s.text(), "FARSIDE_LOCAL?"), nullptr) << s.text();
}

TEST(Options, RejectsInvalidValues) {
  Options o;
  for (auto [name, value] : {std::pair{"FARSIDE_FAULT", "x"},
                             {"FARSIDE_POLICY", "x"},
                             {"FARSIDE_EVICTORS", "9"},
                             {"FARSIDE_LOCAL", "1M"},
                             {"FARSIDE_SPACE", "1K"},
                             {"FARSIDE_PREFETCH", "maybe"},
                             {"FARSIDE_TOKEN_FD", "-1"},
                             {"FARSIDE_TOKEN_FD", "3x"},
                             {"FARSIDE_TOKEN", "a secret in the environment"},
                             {"FARSIDE_LOG", "loud"}}) {
    EXPECT_FALSE(set_option(&o, name, value).ok()) << name;
  }
}

TEST(Options, TakesEveryChoiceAndNothingElse) {
  Options o;
  for (const OptionName& name : option_names()) {
    if (name.choices.empty()) continue;
    for (std::string_view rest = name.choices; !rest.empty();) {
      std::string_view choice = rest.substr(0, rest.find(','));
      EXPECT_TRUE(set_option(&o, name.variable, choice).ok()) << name.flag << " " << choice;
      rest.remove_prefix(std::min(rest.size(), choice.size() + 1));
    }
    EXPECT_FALSE(set_option(&o, name.variable, "x").ok()) << name.flag;
  }
  EXPECT_TRUE(set_option(&o, "FARSIDE_LOG", "warning").ok());  // the choices have set it
}

}  // namespace
}  // namespace farside
