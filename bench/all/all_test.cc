#include <gtest/gtest.h>

#include "bench/all/all_report.h"
#include "bench/all/results.h"
#include "bench/all/workloads.h"
#include "launch/embedded_server.h"
#include "report/files.h"

namespace farside::bench {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& section) { return text.find(section) != std::string::npos; }

TEST(TasksTest, NativeIsFirstAndConfigurationsAlternate) {
  std::vector<std::string> keys;
  for (const Task& task : tasks_of({{"gups"}, {kNative, kFar, kHinted}, {10, 50}, 2})) keys.push_back(task.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"gups/native/100/0", "gups/far/10/0", "gups/hinted/10/0", "gups/far/50/0",
                                            "gups/hinted/50/0", "gups/native/100/1", "gups/far/10/1",
                                            "gups/hinted/10/1", "gups/far/50/1", "gups/hinted/50/1"}));
}

TEST(TasksTest, OnlyApplicationsWithHintsAreRunWithThem) {
  ASSERT_EQ(find_application("memcached_load")->hinted_policy, nullptr);
  for (const Task& task : tasks_of({{"memcached_load"}, {kFar, kHinted}, {10}, 1}))
    EXPECT_NE(task.configuration, kHinted);
}

class ResultsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = PrivateDirectory::create();
    ASSERT_TRUE(made.ok());
    directory_ = std::move(*made);
    file_ = directory_->file("results.json");
  }
  Result<Results> open(uint64_t size = 1, bool fresh = false) { return Results::open(file_, {{"size", size}}, fresh); }

  std::unique_ptr<PrivateDirectory> directory_;
  std::string file_;
  Task task_{"gups", kFar, 10, 0}, again_{"gups", kFar, 10, 1}, other_{"gups", kFar, 50, 0};
};

TEST_F(ResultsTest, ResultsSurviveARestart) {
  auto results = open();
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE(results->needs(task_));
  ASSERT_TRUE(results->put(task_, {{"ops_per_s", 5}}).ok());
  auto restarted = open();
  ASSERT_TRUE(restarted.ok());
  EXPECT_FALSE(restarted->needs(task_));
  EXPECT_TRUE(restarted->needs(again_));
  EXPECT_EQ(median_of(restarted->document(), "gups", kFar, 10, "ops_per_s"), 5);
}

TEST_F(ResultsTest, OtherSettingsAreAnErrorUnlessFresh) {
  ASSERT_TRUE(open()->put(task_, {{"ops_per_s", 5}}).ok());
  auto other = open(2);
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(has(other.status().text(), "with another size")) << other.status().text();
  auto fresh = open(2, true);
  ASSERT_TRUE(fresh.ok());
  EXPECT_TRUE(fresh->needs(task_));
}

TEST_F(ResultsTest, AFileOfAnotherKindIsNotOverwritten) {
  ASSERT_TRUE(write_file(file_, "{\"benchmark\": \"paging\"}").ok());
  EXPECT_FALSE(open().ok());
}

TEST_F(ResultsTest, FailedRunsAreRepeatedAndCutOffOnesAreNot) {
  auto results = open();
  ASSERT_TRUE(results->put(task_, {{"failed", "status 1"}}).ok());
  EXPECT_TRUE(results->needs(task_));
  ASSERT_TRUE(results->put(task_, {{"cut_off", "cut off after 10 s"}}).ok());
  EXPECT_FALSE(results->needs(task_));
  EXPECT_FALSE(results->needs(again_));
  EXPECT_TRUE(results->needs(other_));
  ASSERT_TRUE(results->put(other_, {{"killed", "by the kernel"}}).ok());
  EXPECT_FALSE(results->needs(other_));
  EXPECT_EQ(notes_of(results->document()).size(), 2u);
}

TEST(NotesTest, MoreNearMemoryThanTheShareIsNoted) {
  json document = {{"runs",
                    {{"gups/far/10/0", {{"costs", {{"near_bytes", 8 << 20}, {"heap_bytes", 32 << 20}}}}},
                     {"gups/far/25/0", {{"costs", {{"near_bytes", 8 << 20}, {"heap_bytes", 32 << 20}}}}}}}};
  std::vector<std::string> notes = notes_of(document);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(has(notes[0], "gups/far/10/0: 8.00 MiB of 32.0 MiB were near")) << notes[0];
}

json all_document() {
  json document = {{"machine",
                    {{"processor", "P"},
                     {"cores", 2},
                     {"kernel", "6"},
                     {"memory_bytes", 1 << 30},
                     {"load_average", "0"},
                     {"commit", "c"},
                     {"date", "d"}}},
                   {"settings", {{"size", 1 << 20}, {"threads", 2}, {"transport", "shm"}, {"latency_us", 0}}},
                   {"link", {{"round_trip_us", 4}}},
                   {"skipped", {{"analytics", "not built"}}},
                   {"traces", json::object()}};
  document["runs"]["gups/native/100/0"] = {{"ops_per_s", 8'000'000},
                                           {"fill_s", 0.5},
                                           {"run_s", 0.5},
                                           {"checksum", "a"},
                                           {"timeline", {400'000, 400'000, 100'000}}};
  document["runs"]["gups/far/10/0"] = {{"ops_per_s", 2'000'000},
                                       {"checksum", "a"},
                                       {"fetches", 250'000},
                                       {"timeline", {100'000, 200'000, 200'000, 1'000}}};
  document["runs"]["gups/hinted/10/0"] = {{"ops_per_s", 3'000'000}, {"checksum", "a"}};
  document["runs"]["gups/zram/10/0"] = {{"killed", "by the kernel"}};
  return document;
}

const TaskList kList = {{"gups", "analytics"}, {kFar, kHinted, kZram}, {10}, 1};

TEST(AllReportTest, TheTableHasEveryConfigurationAndTheIdeal) {
  EXPECT_DOUBLE_EQ(*ideal_throughput(all_document(), "gups", 10), 0.5);
  std::string text = all_text(all_document(), kList);
  EXPECT_TRUE(has(text, "gups; ops_per_s: native 8,000,000\n")) << text;
  EXPECT_TRUE(
      has(text, "10%   250,000    50%  2,000,000        25%  3,000,000        38%     -          -         1.50x\n"))
      << text;
  EXPECT_TRUE(has(text, "analytics: not run: not built\nnote: gups/zram/10/0: by the kernel\n")) << text;
}

TEST(AllReportTest, DifferentResultsAndFailuresAreProblems) {
  json document = all_document();
  EXPECT_TRUE(problems_of(document).empty());
  document["runs"]["gups/hinted/10/0"]["checksum"] = "b";
  document["runs"]["gups/far/50/0"] = {{"failed", "status 1"}};
  std::vector<std::string> problems = problems_of(document);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0], "gups/far/50/0: status 1");
  EXPECT_TRUE(has(problems[1], "results differ: gups/far/10/0 a gups/hinted/10/0 b")) << problems[1];
}

TEST(AllReportTest, ThereIsAChartForEveryMeasurement) {
  auto charts = all_charts(all_document(), kList);
  ASSERT_EQ(charts.size(), 2u);
  const LineChart& shares = charts["gups.svg"].at(0);
  ASSERT_EQ(shares.series.size(), 6u);
  EXPECT_DOUBLE_EQ(shares.series[0].points.at(0).second, 25);
  EXPECT_TRUE(shares.series[3].points.empty());  // killed
  const LineChart& line = charts["gups_timeline.svg"].at(0);
  EXPECT_EQ(line.y_label, "million operations/s");
  EXPECT_EQ(line.series[0].points, (std::vector<std::pair<double, double>>{{0.05, 1}, {0.15, 2}, {0.25, 2}}));
}

TEST(AllReportTest, LatenciesBeyondSaturationAreDrawnAtTheTop) {
  json document = all_document();
  for (const char* key : {"memcached_load/native/100/0", "memcached_load/far/10/0"}) {
    document["runs"][key]["curve"] = {{{"achieved", 5000}, {"p99_us", 50}}, {{"achieved", 9000}, {"p99_us", 90000}}};
  }
  auto charts = all_charts(document, {{"memcached_load"}, {kFar}, {10}, 1});
  const LineChart& curve = charts["memcached_load_latency.svg"].at(0);
  EXPECT_DOUBLE_EQ(curve.y_max, 1000);
  EXPECT_EQ(curve.series[0].points, (std::vector<std::pair<double, double>>{{5, 50}, {9, 1000}}));
}

}  // namespace
}  // namespace farside::bench
