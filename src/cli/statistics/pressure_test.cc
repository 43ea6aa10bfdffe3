#include "cli/statistics/pressure.h"

#include <gtest/gtest.h>

namespace farside::cli {
namespace {

using nlohmann::json;

// Of a process that has run for so long, and lost so much of it; it touched memory for the first time for a second.
json report(double seconds, double lost) {
  return {{"seconds", seconds},
          {"fault_us", (lost + 1) * 1e6},
          {"first_touch_us", 1e6},
          {"major_faults", 5},
          {"busiest_thread_fetches", 5}};
}

TEST(PressureTest, AYoungProcessCountsFromItsStart) {
  Pressure pressure;
  EXPECT_DOUBLE_EQ(pressure.over(1), 0);
  pressure.add({{7, report(4, 1)}});
  for (double window : Pressure::kWindows) EXPECT_DOUBLE_EQ(pressure.over(window), 0.25);
}

TEST(PressureTest, WindowsEndNow) {
  Pressure pressure;
  for (int second = 4; second <= 100; second++) pressure.add({{7, report(second, second <= 90 ? 1 : second - 90 + 1)}});
  EXPECT_DOUBLE_EQ(pressure.over(1), 1);
  EXPECT_DOUBLE_EQ(pressure.over(10), 1);
  EXPECT_DOUBLE_EQ(pressure.over(60), 10.0 / 60);
}

TEST(PressureTest, IsThatOfTheProcessThatLostMost) {
  Pressure pressure;
  pressure.add({{7, report(4, 1)}, {8, report(4, 2)}});
  EXPECT_DOUBLE_EQ(pressure.over(10), 0.5);
  pressure.add({{7, report(4, 1)}});  // the other one has ended
  EXPECT_DOUBLE_EQ(pressure.over(10), 0.25);
}

TEST(PressureTest, AProcessIdMayBeUsedAgain) {
  Pressure pressure;
  pressure.add({{7, report(100, 90)}});
  pressure.add({{7, report(2, 1)}});
  EXPECT_DOUBLE_EQ(pressure.over(1), 0.5);
}

}  // namespace
}  // namespace farside::cli
