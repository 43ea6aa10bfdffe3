#include <gtest/gtest.h>

#include "command/command.h"
#include "measure/fault_costs.h"
#include "measure/ideal.h"
#include "tools/plan/one_run_report.h"
#include "tools/plan/plan.h"
#include "tools/plan/plan_report.h"

namespace farside::plan {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(IdealTest, AFetchCostsTheLatencyAndNothingElse) {
  Ideal ideal{2, 4};
  EXPECT_DOUBLE_EQ(ideal.seconds(0), 2);
  EXPECT_DOUBLE_EQ(ideal.throughput(0), 1);
  EXPECT_DOUBLE_EQ(ideal.seconds(500'000), 4);
  EXPECT_DOUBLE_EQ(ideal.throughput(500'000), 0.5);
}

// Two processes; the second has no counts per thread.
json statistics() {
  return {{"processes", {{{"busiest_thread_fetches", 300}, {"major_faults", 500}}, {{"major_faults", 100}}}},
          {"totals",
           {{"faults", 1000},
            {"major_faults", 600},
            {"evictions", 800},
            {"dirty_evictions", 200},
            {"fault_us", 5000},
            {"signal_us", 1000},
            {"fetch_us", 2000},
            {"map_us", 1500},
            {"unmap_us", 400},
            {"frame_wait_p99_us", 12.5}}}};
}

TEST(CostsTest, TheBusiestThreadMayBeInAnyProcess) {
  EXPECT_EQ(busiest_fetches(statistics()), 300u);
  json old = statistics();
  old["processes"][0].erase("busiest_thread_fetches");
  EXPECT_EQ(busiest_fetches(old), 500u);
  EXPECT_EQ(busiest_fetches(json::object()), 0u);
}

TEST(CostsTest, PhasesAddUpAndArePerEvent) {
  json costs = costs_of(statistics());
  std::map<std::string, double> parts;
  for (const json& part : costs["us_per_fault"]) parts[part[0]] = part[1];
  EXPECT_DOUBLE_EQ(parts["signal"], 1);
  EXPECT_DOUBLE_EQ(parts["fetch"], 2);
  EXPECT_DOUBLE_EQ(parts["map"], 1.5);
  EXPECT_DOUBLE_EQ(parts["lookup"], 0);
  EXPECT_DOUBLE_EQ(parts["other"], 1.5);
  EXPECT_EQ(costs["us_per_eviction"][2], json::array({"unmap", 0.5}));
  EXPECT_DOUBLE_EQ(costs["busiest_s"], 0.003);  // half of all fetches
}

TEST(CostsTest, SizesAreOfTheProcessWithTheLargestHeap) {
  json costs = costs_of(
      {{"processes",
        {{{"heap_peak_bytes", 100}, {"local_bytes", 500}}, {{"heap_peak_bytes", 300}, {"local_bytes", 200}}}}});
  EXPECT_EQ(costs["heap_bytes"], 300);
  EXPECT_EQ(costs["near_bytes"], 200);
}

TEST(CostsTest, MissingCountersAreZero) {
  json costs = costs_of(json::object());
  EXPECT_EQ(costs["busiest_s"], 0);
  EXPECT_EQ(costs_text("near", {{"50%", costs}}), "");
}

TEST(CostsTest, ColumnsOfZerosAreOmitted) {
  std::string text = costs_text("near", {{"50%", costs_of(statistics())}});
  EXPECT_TRUE(has(text, "signal  fetch   map  other\n")) << text;
  EXPECT_TRUE(has(text, "evictions  dirty  frame wait p99  unmap\n")) << text;
}

TEST(PlanTest, FromTheSmallestShareOnAllAreWithinTheLimit) {
  std::vector<Timed> points = {{10, 1.05}, {20, 1.5}, {50, 1.09}, {100, 1}};
  EXPECT_EQ(smallest_within(points, 1.1), 50u);
  EXPECT_EQ(smallest_within(points, 2), 10u);
  EXPECT_EQ(smallest_within(points, 0.5), std::nullopt);
}

json plan_document() {
  json made = {{"machine",
                {{"processor", "P"},
                 {"cores", 2},
                 {"kernel", "6"},
                 {"memory_bytes", 1 << 30},
                 {"load_average", "0"},
                 {"commit", "c"},
                 {"date", "d"}}},
               {"transport", "shm"},
               {"round_trip_us", 4},
               {"native_s", {{"median", 1.0}}},
               {"settings", {{"latencies_us", {40}}, {"repetitions", 1}, {"slowdown", 0.1}}},
               {"points", json::array()}};
  struct Point {
    unsigned share;
    uint64_t fetches;
    double seconds;
  };
  for (Point p : {Point{25, 250'000, 4}, {50, 20'000, 1.3}, {100, 0, 1.02}}) {
    made["points"].push_back({{"share", p.share},
                              {"fetches", p.fetches},
                              {"seconds", {{"median", p.seconds}}},
                              {"costs", costs_of(statistics())}});
    made["points"].back()["costs"]["near_bytes"] = p.share << 20;
  }
  return made;
}

TEST(PlanTest, TheTableHasIdealMeasuredAndGap) {
  std::string text = plan_text(plan_document());
  EXPECT_TRUE(has(text, "near  of the heap  fetches of the busiest thread   ideal  ideal 40 us  measured    gap\n"))
      << text;
  EXPECT_TRUE(has(text, "25%      25.0 MiB                         250000   50.0%         9.1%     25.0%  25.0%\n"))
      << text;
}

TEST(PlanTest, TheAnswerIsOneLineAtTheEnd) {
  EXPECT_TRUE(plan_text(plan_document())
                  .ends_with("At most 10% slower than native: down to 100% near (100.0 MiB); an ideal system over this "
                             "link: down to 50% near (50.0 MiB).\n"))
      << plan_text(plan_document());
}

TEST(PlanTest, WhereNoShareIsFastEnoughTheLargestIsNamed) {
  json document = plan_document();
  document["points"].back()["seconds"]["median"] = 1.25;
  std::string text = plan_text(document), none = "with none of the shares measured (100% near is 25% slower)";
  EXPECT_TRUE(has(text, "At most 10% slower than native: " + none + "; ")) << text;
  EXPECT_TRUE(text.ends_with(" Each ran once; --repeat 3 evens out other work on the machine.\n")) << text;
  document["settings"]["repetitions"] = 3;
  EXPECT_TRUE(plan_text(document).ends_with("(50.0 MiB).\n")) << plan_text(document);
}

TEST(PlanTest, AnInterruptedPlanSaysSo) {
  json document = plan_document();
  document["complete"] = false;
  EXPECT_TRUE(plan_text(document).ends_with("larger shares or repetitions were not measured.\n"));
}

TEST(PlanTest, TheChartHasACurveForEveryLink) {
  auto charts = plan_chart(plan_document());
  ASSERT_EQ(charts.size(), 1u);
  ASSERT_EQ(charts[0].series.size(), 5u);
  EXPECT_EQ(charts[0].series[0].points.size(), 3u);
  EXPECT_EQ(charts[0].series[2].name, "ideal 40 us");
  EXPECT_EQ(charts[0].series[3].name, "at most 10% slower");
  EXPECT_DOUBLE_EQ(charts[0].series[1].points[0].second, 50);
}

TEST(PlanTest, TheChartMarksTheAnswerIfThereIsOne) {
  json document = plan_document();
  LineChart::Series answer = plan_chart(document)[0].series.back();
  EXPECT_EQ(answer.name, "answer: 100% near");
  EXPECT_EQ(answer.points.front(), (std::pair{100.0, 0.0}));
  document["points"].back()["seconds"]["median"] = 1.25;
  EXPECT_EQ(plan_chart(document)[0].series.back().name, "at most 10% slower");
}

TEST(OneRunTest, TheCurveLeavesTheChartAtItsTop) {
  json document = {{"heap_bytes", 100 << 20}, {"settings", {{"slowdown", 0.1}}}, {"keep", {{"bytes", 90 << 20}}}};
  for (auto [mib, slowdown] : {std::pair{20, 9.2}, {40, 4.2}, {60, 2.2}, {100, 1.0}})
    document["points"].push_back({{"near_bytes", mib << 20}, {"slowdown", slowdown}});
  LineChart chart = one_run_chart(document)[0];
  ASSERT_EQ(chart.series[0].points.size(), 3u);
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].first, 50);
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].second, 3.2);
  EXPECT_EQ(chart.series[1].name, "at most 10% slower");
  EXPECT_EQ(chart.series[2].name, "answer: 90M near");
  document["keep"] = nullptr;
  EXPECT_TRUE(one_run_chart(document)[0].series[2].points.empty());
}

TEST(PlanCommandTest, HelpHasExamplesAndMistakesAreOneLine) {
  auto plan = [](std::vector<const char*> line) {
    line.insert(line.begin(), "farside-plan");
    return run_plan(static_cast<int>(line.size()), line.data());
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(plan({"--help"}), 0);
  fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("Examples:\n  farside plan"), std::string::npos);
  for (const std::vector<const char*>& line : {std::vector<const char*>{},
                                               {"--shares", "0,10", "--", "true"},
                                               {"--seconds", "5", "--", "true"},
                                               {"--slowdown", "1G", "--", "true"}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(plan(line), kExitUsage);
    std::string error = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(error.starts_with("farside: error: ") && error.find('\n') == error.size() - 1) << error;
  }
}

}  // namespace
}  // namespace farside::plan
