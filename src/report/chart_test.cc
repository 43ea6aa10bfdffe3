#include "report/chart.h"

#include <gtest/gtest.h>

namespace farside {
namespace {

TEST(ChartTest, HasABarForEveryValueExceptMissingOnes) {
  Chart chart{"a < b", "us", {"read", "write"}, {{"shm", {1, 2}}, {"tcp", {3, -1}}}};
  std::string svg = to_svg(chart);
  size_t boxes = 0;
  for (size_t at = 0; (at = svg.find("<rect x=", at)) != svg.npos; at++) boxes++;
  EXPECT_EQ(boxes, 2u + 3u);  // legend and bars
  EXPECT_NE(svg.find("a &lt; b"), svg.npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(ChartTest, HasALineForEverySeriesOfEveryPanel) {
  LineChart panel{"a", "x", "y", 100, 1, {{"one", {{0, 0}, {100, 1}}}, {"two", {{50, 0.5}}}}};
  std::string svg = to_svg({panel, panel, panel});
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("<polyline", at)) != svg.npos; at++) lines++;
  EXPECT_EQ(lines, 6u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(ChartTest, AxesEndAtRoundNumbersAndHaveALabelEach) {
  LineChart panel{"a", "seconds", "us", 97, 7.3, {{"one", {{0, 0}, {97, 7.3}}}}};
  std::string svg = to_svg(std::vector<LineChart>{panel});
  for (const char* text : {">0<", ">25<", ">75<", ">100<", ">2<", ">6<", ">8<", ">seconds<", ">us<"})
    EXPECT_NE(svg.find(text), svg.npos) << text << svg;
}

TEST(ChartTest, AHeadingIsShortenedToTheWidth) {
  LineChart panel{"a", "x", "y", 100, 1, {{"one", {{0, 0}}}}};
  EXPECT_NE(to_svg({panel}, "sort <in").find(">sort &lt;in<"), std::string::npos);
  std::string svg = to_svg({panel}, "ö" + std::string(30, 'a') + std::string(300, 'b'));
  EXPECT_NE(svg.find("ab"), svg.npos);
  EXPECT_NE(svg.find("b...<"), svg.npos);
  EXPECT_EQ(svg.find(std::string(50, 'b')), svg.npos);
}

TEST(ChartTest, ASeriesWithoutPointsIsOmitted) {
  LineChart panel{"a", "x", "y", 100, 1, {{"one", {{0, 0}, {100, 1}}}, {"none", {}}, {"two", {{50, 0.5}}}}};
  std::string svg = to_svg(std::vector<LineChart>{panel});
  EXPECT_EQ(svg.find("none</text>"), svg.npos);
  EXPECT_NE(svg.find("two</text>"), svg.npos);
}

TEST(ChartTest, PanelsOfOtherSeriesHaveAnotherLegend) {
  LineChart maps{"a", "x", "y", 100, 1, {{"hash_map", {{0, 0}}}}}, waits{"b", "x", "y", 100, 1, {{"pauses", {{0, 0}}}}};
  std::string svg = to_svg(std::vector<LineChart>{maps, maps, waits});
  EXPECT_EQ(svg.find("hash_map</text>"), svg.rfind("hash_map</text>"));
  EXPECT_NE(svg.find("pauses</text>"), svg.npos);
}

TEST(ChartTest, LongNumbersAreShort) {
  LineChart panel{"a", "x", "y", 64, 2.3e6, {{"", {{0, 0}, {64, 590'000}}}}};
  std::string svg = to_svg(std::vector<LineChart>{panel});
  for (const char* text : {">64<", ">600k<", ">2.4M<"}) EXPECT_NE(svg.find(text), svg.npos) << text << svg;
}

}  // namespace
}  // namespace farside
