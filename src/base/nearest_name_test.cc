#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace farside {
namespace {

TEST(NearestName, FindsWhatWasMeant) {
  constexpr std::string_view kNames[] = {"--local", "--log", "--policy", "run", "trace", "track"};
  EXPECT_EQ(nearest_name("--polcy", kNames), "--policy");
  EXPECT_EQ(nearest_name("--polciy", kNames), "--policy");
  EXPECT_EQ(nearest_name("--lokal", kNames), "--local");
  EXPECT_EQ(nearest_name("--lgo", kNames), "--log");
  EXPECT_EQ(nearest_name("rnu", kNames), "run");
  EXPECT_EQ(nearest_name("trak", kNames), "track");
  EXPECT_EQ(nearest_name("run", kNames), "run");
}

TEST(NearestName, FindsNothingInOtherWords) {
  constexpr std::string_view kNames[] = {"--local", "run"};
  EXPECT_EQ(nearest_name("walk", kNames), "");
  EXPECT_EQ(nearest_name("--verbose", kNames), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace farside
