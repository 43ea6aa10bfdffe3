#include "bench/papers/papers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "bench/runner/report.h"

namespace farside::bench::papers {
namespace {

using nlohmann::json;

// Those that report results; the others show designs or list programs.
constexpr const char* kAll =
    "aifm-1 aifm-2 aifm-6 aifm-7 aifm-8 aifm-9 aifm-10 aifm-11 aifm-12 aifm-13 aifm-14 aifm-15 "
    "eden-1 eden-2 eden-T1 eden-6 eden-7 eden-8 eden-9 eden-10 eden-11 "
    "mage-1 mage-3 mage-4 mage-5 mage-6 mage-7 mage-9 mage-10 mage-11 mage-12 mage-13 mage-14 mage-15 mage-16 mage-17 "
    "mage-18 mage-T2 "
    "atlas-1 atlas-4 atlas-5 atlas-6 atlas-7 atlas-8 atlas-9 atlas-10 atlas-11 "
    "kona-T2 kona-2 kona-3 kona-7 kona-8 kona-9 kona-10 kona-11";

TEST(PapersTest, EveryFigureIsListedOnceInTheOrderOfThePapers) {
  std::istringstream names(kAll);
  std::vector<std::string> all;
  for (std::string name; names >> name;) all.push_back(name);
  EXPECT_EQ(all.size(), 55u);
  EXPECT_EQ(figure_names(), all);
}

TEST(PapersTest, EveryFigureIsMeasuredOrHasAReason) {
  for (const Figure& figure : figures()) {
    for (const char* text : {figure.measured, figure.stated}) EXPECT_STRNE(text, "") << figure.id;
    EXPECT_EQ(figure.ways.empty(), figure.ratios.empty()) << figure.id;
    EXPECT_EQ(figure.ways.empty(), *figure.differs == 0) << figure.id;
    EXPECT_EQ(figure.ways.empty(), *figure.reason != 0) << figure.id;
  }
}

TEST(PapersTest, EveryCommandIsOneOfFarsideOrAnApplication) {
  const std::set<std::string> commands = {"run", "trace", "track", "plan"};
  for (const Figure& figure : figures()) {
    for (const Way& way : figure.ways) {
      for (const auto& [run, command] : expanded(way.command)) {
        std::vector<std::string> words = words_of(command);
        bool is_app = words[0].starts_with("apps/");
        bool is_benchmark = words[0] == "bench" && std::ranges::any_of(benchmarks(), [&](const Benchmark& b) {
                              return b.name == words[1] && b.name != std::string("papers");
                            });
        EXPECT_TRUE(is_app || is_benchmark || commands.contains(words[0])) << figure.id << ": " << command;
      }
    }
  }
}

TEST(PapersTest, ALabelNamesOneRatioAndIsShortEnoughForAChart) {
  std::set<std::string> known;
  for (const Figure& figure : figures()) {
    std::string paper = std::string(figure.id).substr(0, 4);
    for (const Target& ratio : figure.ratios) {
      std::string label = ratio.text.substr(0, ratio.text.find(": "));
      EXPECT_TRUE(known.insert(paper + label).second) << figure.id << " " << label;
      EXPECT_LT(label.size(), std::isnan(ratio.limit.limit) ? 20u : 12u) << label;
    }
  }
}

TEST(PapersTest, BracesStandForSeveralCommands) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(expanded("run x"), (Pairs{{"", "run x"}}));
  EXPECT_EQ(expanded("run {1%,2 %} x"), (Pairs{{"1%", "run 1% x"}, {"2 %", "run 2 % x"}}));
}

TEST(PapersTest, QuotesHoldWordsTogether) {
  EXPECT_EQ(words_of("bench file --c 'far file,x' y"),
            (std::vector<std::string>{"bench", "file", "--c", "far file,x", "y"}));
}

TEST(PapersTest, TheOutputOfAProgramIsARow) {
  json rows = rows_of({{"app", "gups"}, {"hints", true}, {"run_s", 2.5}, {"timeline", {1, 2}}});
  EXPECT_EQ(rows, json::parse(R"([{"run_s": {"median": 2.5}}])"));
  EXPECT_EQ(rows_of({{"rows", {{{"a", 1}}}}, {"benchmark", "b"}}), json::parse(R"([{"a": 1}])"));
}

TEST(PapersTest, TracksHaveSharesOfTheirHistograms) {
  json total = {{"lines_per_page", std::vector<int>(64, 1)}, {"run_lengths", {3, 0, 0, 0, 1}}};
  json cost = {{"write_faults", 1000}, {"write_fault_ns", 500}, {"elapsed_seconds", 0.1}};
  json row = rows_of({{"total", total}, {"overhead", cost}})[0];
  EXPECT_DOUBLE_EQ(*figure_of(row, "pages_to_8_lines"), 12.5);
  EXPECT_DOUBLE_EQ(*figure_of(row, "runs_to_4_lines"), 75);
  EXPECT_DOUBLE_EQ(*figure_of(row, "in_write_faults"), 0.5);
}

TEST(PapersTest, PredictionsHaveARowForEachSystemAndShare) {
  json points = {{{"share", 25}, {"amat_ns", 40}}, {{"share", 50}, {"amat_ns", 30}}};
  json rows = rows_of({{"systems", {{{"name", "LegoOS"}, {"points", points}}}}});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["system"], "LegoOS");
  EXPECT_DOUBLE_EQ(*figure_of(rows[1], "amat_ns"), 30);
}

// Rows that differ in which members they have are compared, where the members are named as null.
TEST(PapersTest, ARatioIsOfRowsOfTwoCommands) {
  json rows =
      json::parse(R"([{"way": "far", "run": "on", "s": {"median": 8}}, {"way": "native", "s": {"median": 2}}])");
  std::vector<Goal> goals;
  add_goals(goal("{run}: times", "s", stated(3), {{"way", "far"}}).over("s", {{"way", "native"}, {"run", nullptr}}),
            rows, &goals);
  ASSERT_EQ(goals.size(), 1u);
  EXPECT_EQ(goals[0].name, "on: times");
  EXPECT_DOUBLE_EQ(goals[0].measured, 4);
}

}  // namespace
}  // namespace farside::bench::papers
