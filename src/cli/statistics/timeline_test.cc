#include "cli/statistics/timeline.h"

#include <gtest/gtest.h>

#include "base/bits.h"

namespace farside::cli {
namespace {

nlohmann::json process(uint64_t near_mib, uint64_t heap_mib) {
  return {{"heap_bytes", heap_mib * kMiB}, {"near_bytes", near_mib * kMiB}, {"local_bytes", 50 * kMiB}};
}

size_t points_in(const std::string& svg) {
  size_t begin = svg.find("points=\""), end = svg.find('"', begin + 8);
  return static_cast<size_t>(
      std::count(svg.begin() + static_cast<long>(begin), svg.begin() + static_cast<long>(end), ','));
}

TEST(TimelineTest, SumsOfTheProcessesOverTime) {
  Timeline timeline;
  timeline.add({}, 0);
  timeline.add({{1, process(10, 40)}}, 1);
  timeline.add({{1, process(20, 40)}, {2, process(60, 50)}}, 4);  // near is at most the heap
  std::string svg = timeline.to_svg("sort <big");
  EXPECT_NE(svg.find("sort &lt;big"), std::string::npos);
  EXPECT_EQ(points_in(svg), 2U);
  for (const char* text : {">near<", ">far<", ">budget<", ">MiB<", ">%<", ">seconds<"})
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  EXPECT_NE(svg.find(">100<"),
            std::string::npos);  // MiB, where the axis ends: 20 and 50 are near, 20 far, 100 the budget
  EXPECT_FALSE(Timeline().to_svg("nothing").empty());
}

TEST(TimelineTest, LongRunsHaveFewerPointsASecond) {
  Timeline timeline;
  for (int i = 0; i < 100'000; i++) timeline.add({{1, process(10, 40)}}, 0.2 * i);
  std::string svg = timeline.to_svg("long");
  EXPECT_GT(points_in(svg), 900U);
  EXPECT_LT(points_in(svg), 2000U);
}

}  // namespace
}  // namespace farside::cli
