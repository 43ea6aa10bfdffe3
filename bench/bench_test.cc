#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "abi/page_trace.h"
#include "bench/bench.h"
#include "bench/redis_server.h"
#include "bench/runner/report.h"
#include "bench/runner/runner.h"
#include "command/command.h"
#include "launch/embedded_server.h"
#include "measure/access.h"
#include "measure/statistics.h"
#include "report/files.h"
#include "report/format.h"
#include "report/test_folder.h"

namespace farside::bench {
namespace {

using nlohmann::json;

// A thread whose memory is near is done at once; that must not count as a rate of all threads.
TEST(AccessTest, TheRateIsThatOfAllThreadsUntilTheLastHasEnded) {
  constexpr uint64_t kPages = 64, kAccesses = 20, kSlowUs = 1000;
  std::vector<std::byte> memory(kPages * kPageSize);
  const std::byte* second_part = memory.data() + kPages / 2 * kPageSize;
  Arena arena = {memory.data(), kPages, [] {},
                 [&](const std::byte* word) {
                   if (word >= second_part) usleep(kSlowUs);
                 }};
  uint64_t start = 0;
  Pace pace = run_accesses(arena, kSequentialRead, 2, {kAccesses, 100}, &start);
  EXPECT_EQ(pace.accesses, 2 * kAccesses);
  EXPECT_LE(pace.per_s, 2e6 / kSlowUs);
  EXPECT_EQ(start, kAccesses);
}

TEST(StatisticsTest, SummaryHasMedianAndExtremes) {
  json s = summary({3, 1, 2});
  EXPECT_EQ(s["median"], 2);
  EXPECT_EQ(s["min"], 1);
  EXPECT_EQ(s["max"], 3);
  EXPECT_EQ(s["runs"], json({3, 1, 2}));
}

TEST(StatisticsTest, QuantilesAreAmongTheValues) {
  std::vector<uint32_t> values;
  for (uint32_t i = 0; i <= 1000; i++) values.push_back(1000 - i);
  EXPECT_EQ(quantile(values, 0.5), 500u);
  EXPECT_EQ(quantile(values, 0.99), 990u);
  EXPECT_EQ(quantile(values, 1.0), 1000u);
}

TEST(StatisticsTest, AGoalIsMetOnOneSideOfItsLimit) {
  EXPECT_TRUE((Goal{"speed", 2.5, 2, true, "x"}).met());
  EXPECT_FALSE((Goal{"speed", 1.5, 2, true, "x"}).met());
  EXPECT_FALSE((Goal{"time", 2.5, 2, false, " us"}).met());
  EXPECT_EQ((Goal{"time", 2.5, 2, false, " us"}).text(), "not reached time: 2.50 us (goal: at most 2 us)");
}

TEST(FormatTest, TablesAreAligned) { EXPECT_EQ(format_table({{"a", "bb"}, {"ccc", "d"}}), "a    bb\nccc   d\n"); }

TEST(FormatTest, TheTimeLeftIsExtrapolated) {
  EXPECT_EQ(time_left_text(0, 10, 5), "");
  EXPECT_EQ(time_left_text(2, 10, 4), "about 16 s left");
  EXPECT_EQ(time_left_text(1, 10, 60), "about 9 min left");
  EXPECT_EQ(time_left_text(12, 10, 60), "about 0 s left");
}

const Benchmark& benchmark_of(const char* name) {
  return *std::ranges::find_if(benchmarks(), [&](const Benchmark& b) { return b.name == std::string(name); });
}

json rows_of_policy(const json& document, const char* policy) {
  json rows = json::array();
  for (const json& row : document["rows"]) {
    if (row["policy"] == policy) rows.push_back(row);
  }
  return rows;
}

TEST(PoliciesTest, EveryTraceHasEveryPolicyAtEveryShare) {
  const Benchmark& benchmark = benchmark_of("policies");
  Settings settings = benchmark.defaults;
  settings.pages = 500, settings.accesses = 5000, settings.shares = {10, 60}, settings.quiet = true;
  Result<json> document = run_benchmark(benchmark, settings);
  ASSERT_TRUE(document.ok());
  EXPECT_EQ((*document)["rows"].size(), 6u * 16 * 2);
  for (const json& row : (*document)["rows"]) {
    EXPECT_GE(row["hits"]["median"], 0);
    EXPECT_LE(row["hits"]["median"], 100);
  }
  EXPECT_NE(text_of(benchmark, *document).find("probation 30%"), std::string::npos);
  std::string svg = plots_of(benchmark, *document).at(0).second;
  for (const char* shown : {"phases", "exact LRU", "priority, hints"}) EXPECT_NE(svg.find(shown), svg.npos) << shown;
}

TEST(PoliciesTest, RecordedTracesAreReadAndCountedInFetches) {
  TestFolder folder;
  std::string path = folder.file("recorded.pages");
  PageTraceWriter writer;
  ASSERT_TRUE(writer.open(path).ok());
  for (int round = 0; round < 3; round++) {
    for (uint64_t page = 0; page < 1000; page++) writer.access(page);
  }
  ASSERT_TRUE(writer.close().ok());
  const Benchmark& benchmark = benchmark_of("policies");
  Settings settings = benchmark.defaults;
  settings.shares = {50, 100}, settings.traces = {path}, settings.quiet = true;
  Result<json> document = run_benchmark(benchmark, settings);
  ASSERT_TRUE(document.ok());
  for (const json& row : (*document)["rows"]) {
    if (row["near"] == 100) EXPECT_EQ(row["fetches"]["median"], 0u) << row["policy"];
    else EXPECT_GE(row["fetches"]["median"], 1000u) << row["policy"];  // half of each of the two later rounds
  }
  EXPECT_EQ(rows_of_policy(*document, "exact LRU")[0]["fetches"]["median"], 2000u);
  EXPECT_NE(text_of(benchmark, *document).find("multiples of the optimum"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_FALSE(run_benchmark(benchmark, settings).ok());
}

// ---- The report, on rows that are written here ----

json measured_row(const char* configuration, const char* workload, double us) {
  return {{"suite", "s"},
          {"configuration", configuration},
          {"workload", workload},
          {"us", summary({us})},
          {"counters", {{"faults", 2 * us}}}};
}

json report_document() {
  return {{"machine",
           {{"processor", "P"},
            {"cores", 2},
            {"kernel", "6"},
            {"memory_bytes", 1 << 30},
            {"load_average", "0"},
            {"commit", "c"},
            {"date", "d"}}},
          {"settings", {{"repetitions", 1}}},
          {"skipped", {{"swap", "no root"}}},
          {"rows", {measured_row("far", "read", 2), measured_row("far", "write", 4), measured_row("swap", "read", 5)}}};
}

Benchmark report_benchmark(Suite suite) {
  return {.name = "b", .help = "", .options = "", .suites = {std::move(suite)}};
}

Suite suite_with(std::vector<Table> tables) {
  return {.name = "s", .measurements = nullptr, .tables = std::move(tables)};
}

TEST(ReportTest, ATableHasAColumnForEachValueAndTheQuotient) {
  Suite suite = suite_with({table("us", {"workload"}, {col("", "us")}).by("configuration", "swap")});
  std::string text = text_of(report_benchmark(suite), report_document());
  EXPECT_NE(text.find("us     far  swap  swap / far\nread   2.0   5.0       2.50x\nwrite  4.0     -           -\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("swap: not run: no root\n"), text.npos) << text;
}

TEST(ReportTest, AColumnMayBeAQuotientOfCountersAndLeavesOutOtherRows) {
  Suite suite = suite_with({table("per us", {"configuration"}, {col("faults", "counters/faults", 1, 1, "us")})
                                .of({{"workload", {"read", "scan"}}})});
  std::string text = text_of(report_benchmark(suite), report_document());
  EXPECT_NE(text.find("per us  faults\nfar        2.0\nswap       2.0\n"), text.npos) << text;
}

TEST(ReportTest, AGoalIsForEachRowThatHasWhatItIsComparedWith) {
  Suite suite = suite_with({});
  suite.targets = {goal("{workload}: against swap", "us", at_least(3), {{"configuration", "swap"}})
                       .over("us", {{"configuration", "far"}}),
                   goal("worst of far", "us", at_most(3), {{"configuration", "far"}}).at_worst("workload")};
  std::vector<Goal> goals = goals_of(report_benchmark(suite), report_document());
  ASSERT_EQ(goals.size(), 2u);
  EXPECT_EQ(goals[0].name, "read: against swap");
  EXPECT_DOUBLE_EQ(goals[0].measured, 2.5);
  EXPECT_DOUBLE_EQ(goals[1].measured, 4);
  EXPECT_NE(goals_text(goals).find("is no error"), std::string::npos);
  EXPECT_EQ(goals_text({}), "");
}

TEST(ReportTest, WordsMakeBarsAndNumbersLines) {
  auto curves = [](const char* x) { return chart("t", "x", "y", x, {"us"}, {"configuration"}); };
  Suite suite = suite_with({});
  suite.charts = {curves("workload")};
  json document = report_document();
  EXPECT_EQ(plots_of(report_benchmark(suite), document).at(0).second.find("<polyline"), std::string::npos);
  for (size_t i = 0; i < document["rows"].size(); i++) document["rows"][i]["threads"] = i + 1;
  suite.charts = {curves("threads")};
  EXPECT_NE(plots_of(report_benchmark(suite), document).at(0).second.find("<polyline"), std::string::npos);
}

TEST(BenchmarksTest, EveryNameIsInTheListOnce) {
  std::set<std::string> names;
  for (const Benchmark& benchmark : benchmarks()) EXPECT_TRUE(names.insert(benchmark.name).second) << benchmark.name;
  EXPECT_EQ(names.size(), 17u);
}

Settings reading(const std::string& file) {
  Settings settings;
  settings.repetitions = 2, settings.json = file, settings.quiet = true;
  return settings;
}

// A benchmark whose measurement counts its runs, and computes once.
Benchmark counting_benchmark(int* runs, int* used) {
  static int *counted, *sum;
  counted = runs, sum = used;
  return report_benchmark(
      {.name = "s",
       .measurements =
           [](const Setup&) {
             std::vector<Measurement> all(2);
             all[0] = {.key = {{"what", "count"}},
                       .name = "count",
                       .run =
                           [] {
                             return json{{"n", ++*counted}};
                           },
                       .in_parent = true,
                       .use =
                           [](const json& made) {
                             *sum += made["n"].get<int>();
                             return made["n"] == 7 ? Status::error(EIO, "seven") : Status();
                           }};
             all[1] = {.key = {{"what", "sum"}}, .name = "sum", .run = [] { return json{{"n", *sum}}; }, .once = true};
             return all;
           },
       .tables = {}});
}

TEST(RunnerTest, WhatIsComputedRunsOnceAfterTheLastRepetition) {
  int runs = 0, sum = 0;
  auto document = run_benchmark(counting_benchmark(&runs, &sum), reading(""));
  ASSERT_TRUE(document.ok());
  EXPECT_EQ((*document)["rows"][0]["n"]["runs"], json({1, 2}));
  EXPECT_EQ((*document)["rows"][1]["n"]["runs"], json({3}));
}

TEST(RunnerTest, AStoppedRunGoesOnWithTheSameSettings) {
  TestFolder folder;
  int runs = 0, sum = 0;
  Benchmark benchmark = counting_benchmark(&runs, &sum);
  Settings settings = reading(folder.file("results.json"));
  auto first = run_benchmark(benchmark, settings), again = run_benchmark(benchmark, settings);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ((*first)["rows"], (*again)["rows"]);
  EXPECT_EQ(runs, 2);
  std::string journal = journal_path(benchmark, settings), known = read_file(journal);
  ASSERT_TRUE(write_file(journal, known.substr(0, known.rfind('\n') - 3)).ok());  // the last two lines: lost, cut
  ASSERT_TRUE(run_benchmark(benchmark, settings).ok());
  EXPECT_EQ(runs, 3);
  benchmark.options = "--seed";
  EXPECT_FALSE(run_benchmark(benchmark, settings).ok());
}

TEST(RunnerTest, AnErrorOfUseIsAProblem) {
  int runs = 6, sum = 0;
  Benchmark benchmark = counting_benchmark(&runs, &sum);
  auto document = run_benchmark(benchmark, reading(""));
  ASSERT_TRUE(document.ok());
  EXPECT_EQ((*document)["problems"], json({"count: seven"}));
  EXPECT_NE(text_of(benchmark, *document).find("problem: count: seven\n"), std::string::npos);
}

TEST(RedisCsvTest, ColumnsAreFoundByName) {
  auto figures = parse_redis_csv(
      "\"test\",\"rps\",\"p50_latency_ms\",\"p99_latency_ms\"\n"
      "\"SET\",\"1000.5\",\"0.1\",\"0.25\"\n");
  ASSERT_TRUE(figures.ok());
  EXPECT_DOUBLE_EQ((*figures)["ops_per_s"], 1000.5);
  EXPECT_DOUBLE_EQ((*figures)["p99_us"], 250);
  EXPECT_FALSE(parse_redis_csv("Could not connect").ok());
  EXPECT_FALSE(parse_redis_csv("").ok());
}

int run_quietly(std::vector<const char*> arguments, std::string* out, std::string* errors) {
  arguments.insert(arguments.begin(), "farside bench");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int exit_status = run_bench(static_cast<int>(arguments.size()), arguments.data());
  fflush(stdout);
  *out = testing::internal::GetCapturedStdout();
  *errors = testing::internal::GetCapturedStderr();
  return exit_status;
}

TEST(CommandsTest, HelpHasExamples) {
  std::string out, errors;
  for (std::vector<const char*> line :
       {std::vector<const char*>{"--help"}, {"paging", "--help"}, {"redis", "--help"}, {"all", "--help"}}) {
    EXPECT_EQ(run_quietly(line, &out, &errors), 0);
    EXPECT_NE(out.find("Examples:\n  "), std::string::npos) << out;
  }
}

TEST(CommandsTest, TheListHasEveryBenchmark) {
  std::string out, errors;
  EXPECT_EQ(run_quietly({"--list"}, &out, &errors), 0);
  for (const Benchmark& benchmark : benchmarks()) EXPECT_NE(out.find(benchmark.help), out.npos) << out;
}

TEST(CommandsTest, SeveralBenchmarksTakeTheirCommonOptions) {
  std::string out, errors;
  EXPECT_EQ(run_quietly({"hints", "policies", "--pages", "500"}, &out, &errors), kExitUsage);  // hints has no pages
  EXPECT_EQ(run_quietly({"hints", "fibers", "--help"}, &out, &errors), 0);
  EXPECT_NE(out.find("--repeat"), out.npos);
  EXPECT_EQ(out.find("--size"), out.npos);
}

TEST(CommandsTest, UsageErrorsAreOneLineAndStatus2) {
  std::string out, errors;
  for (std::vector<const char*> line : {std::vector<const char*>{},
                                        {"paging", "--local", "1G"},
                                        {"paging", "--size", "4K"},
                                        {"all", "--apps", "no_such"},
                                        {"all", "--size", "4K"},
                                        {"all", "--transport", "tcp", "--latency", "4"}}) {
    EXPECT_EQ(run_quietly(line, &out, &errors), kExitUsage);
    EXPECT_TRUE(errors.starts_with("farside: error: ") && errors.find('\n') == errors.size() - 1) << errors;
  }
}

}  // namespace
}  // namespace farside::bench
