#include <gtest/gtest.h>
#include <stdlib.h>

#include "abi/page_trace.h"
#include "bench/bench.h"
#include "bench/objects/objects.h"
#include "bench/paging.h"
#include "bench/paging_report.h"
#include "bench/policies.h"
#include "bench/redis.h"
#include "command/command.h"
#include "launch/embedded_server.h"
#include "measure/chart.h"
#include "measure/statistics.h"
#include "report/files.h"
#include "report/format.h"

namespace farside::bench {
namespace {

using nlohmann::json;

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
  EXPECT_EQ((Goal{"time", 2.5, 2, false, " us"}).text(), "missed  time: 2.50 us (goal: at most 2 us)");
}

TEST(FormatTest, TablesAreAligned) { EXPECT_EQ(format_table({{"a", "bb"}, {"ccc", "d"}}), "a    bb\nccc   d\n"); }

TEST(FormatTest, TheTimeLeftIsExtrapolated) {
  EXPECT_EQ(time_left_text(0, 10, 5), "");
  EXPECT_EQ(time_left_text(2, 10, 4), "about 16 s left");
  EXPECT_EQ(time_left_text(1, 10, 60), "about 9 min left");
  EXPECT_EQ(time_left_text(12, 10, 60), "about 0 s left");
}

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

TEST(PoliciesTest, EveryTraceHasEveryPolicyAtEveryShare) {
  Result<json> measured =
      measure_policies({.pages = 500, .accesses = 5000, .shares = {10, 60}, .traces = {}, .quiet = true});
  ASSERT_TRUE(measured.ok());
  const json& document = *measured;
  ASSERT_EQ(document["traces"].size(), 6u);
  for (const json& trace : document["traces"]) {
    EXPECT_EQ(trace["curves"].size(), 16u);
    for (const json& curve : trace["curves"]) {
      ASSERT_EQ(curve["points"].size(), 2u);
      for (const json& point : curve["points"]) {
        EXPECT_GE(point["hits"], 0);
        EXPECT_LE(point["hits"], 100);
      }
    }
  }
  EXPECT_NE(policies_text(document).find("probation 30%"), std::string::npos);
  EXPECT_EQ(policies_charts(document).size(), 6u);
  EXPECT_EQ(policies_charts(document)[0].series.size(), 7u);
}

TEST(PoliciesTest, RecordedTracesAreReadAndCountedInFetches) {
  std::string path = testing::TempDir() + "recorded." + std::to_string(getpid()) + ".pages";
  PageTraceWriter writer;
  ASSERT_TRUE(writer.open(path).ok());
  for (int round = 0; round < 3; round++) {
    for (uint64_t page = 0; page < 1000; page++) writer.access(page);
  }
  ASSERT_TRUE(writer.close().ok());
  PoliciesSettings settings;
  settings.shares = {50, 100};
  settings.traces = {path};
  settings.quiet = true;
  Result<json> measured = measure_policies(settings);
  ASSERT_TRUE(measured.ok());
  for (const json& curve : (*measured)["traces"][0]["curves"]) {
    EXPECT_EQ(curve["points"][1]["fetches"], 0u) << curve["policy"];
    EXPECT_GE(curve["points"][0]["fetches"], 1000u) << curve["policy"];  // half of each of the two later rounds
    if (curve["policy"] == "exact LRU") {
      EXPECT_EQ(curve["points"][0]["fetches"], 2000u);
    }
  }
  EXPECT_NE(policies_text(*measured).find("multiples of the optimum"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_FALSE(measure_policies(settings).ok());
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

// The whole benchmark on little data. Checks that the document is complete and its values are possible, not the times.
class PagingSmokeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto directory = PrivateDirectory::create();
    ASSERT_TRUE(directory.ok());
    std::string json_file = (*directory)->file("paging.json"), svg_file = (*directory)->file("paging.svg");
    const char* line[] = {
        "farside bench", "paging", "--size",          "16M",   "--repeat",       "1",          "--quiet",
        "--no-zram",     "--json", json_file.c_str(), "--svg", svg_file.c_str(), "--accesses", "2000",
        "--seconds",     "2"};
    testing::internal::CaptureStdout();
    exit_status_ = run_bench(std::size(line), line);
    text_ = testing::internal::GetCapturedStdout();
    document_ = json::parse(read_file(json_file), nullptr, false);
    svg_ = read_file(svg_file);
  }

  void SetUp() override {
    ASSERT_EQ(exit_status_, 0);
    ASSERT_FALSE(document_.is_discarded());
  }

  static inline int exit_status_ = -1;
  static inline std::string text_, svg_;
  static inline json document_;
};

TEST_F(PagingSmokeTest, EveryConfigurationHasEveryWorkload) {
  std::map<std::string, int> cells;
  for (const json& cell : document_["cells"]) {
    cells[cell["configuration"]]++;
    EXPECT_GT(cell["us"]["median"], 0) << cell;
    EXPECT_GT(cell["counters"]["accesses"], 0) << cell;
  }
  std::map<std::string, int> expected;
  for (const char* name : {"native", "shm", "tcp", "shm pages", "tcp pages", "ucx", "shm handler"}) expected[name] = 8;
  EXPECT_EQ(cells, expected);
  EXPECT_TRUE(document_["skipped"].contains("zram swap"));
}

TEST_F(PagingSmokeTest, FarMemoryFaultedAndEvicted) {
  for (const json& cell : document_["cells"]) {
    if (cell["configuration"] == "native" || cell["workload"] != "random read") continue;
    const json& c = cell["counters"];
    EXPECT_GT(c["major_faults"], 0) << cell;
    // A thread that starts may be within a fault, counted already, when the counters are read first.
    EXPECT_LE(c["major_faults"].get<double>(), c["faults"].get<double>() + cell["threads"].get<double>()) << cell;
    EXPECT_GT(c["evictions"], 0) << cell;
    EXPECT_LE(c["dirty_evictions"], c["evictions"]) << cell;
    EXPECT_LE(c["map_us"].get<double>() + c["fetch_us"].get<double>(), c["fault_us"].get<double>()) << cell;
  }
}

TEST_F(PagingSmokeTest, HasMissesRoundTripsAndTheMachine) {
  for (const char* configuration : {"shm", "tcp", "ucx", "shm handler"}) {
    const json& miss = document_["misses"][configuration];
    EXPECT_GT(miss["share"], 0.3) << configuration;  // three quarters of the pages are far
    EXPECT_GE(miss["p99_us"], miss["median_us"]) << configuration;
    EXPECT_GE(miss["p999_us"], miss["p99_us"]) << configuration;
  }
  EXPECT_GT(document_["round_trip_us"]["tcp"]["median"], 0);
  EXPECT_GT(document_["round_trip_us"]["shm"]["median"], 0);
  EXPECT_GT(document_["round_trip_us"]["ucx"]["median"], 0);
  EXPECT_GT(document_["all_near_ratio"]["median"], 0);
  EXPECT_EQ(document_["goals"].size(), 9u);  // those that do not need zram
  for (const char* field : {"processor", "kernel", "commit", "date", "load_average"}) {
    EXPECT_FALSE(document_["machine"][field].get<std::string>().empty()) << field;
  }
  EXPECT_EQ(document_["settings"]["bytes"], 16 << 20);
}

TEST_F(PagingSmokeTest, TextAndChartShowTheResults) {
  EXPECT_NE(text_.find("sequential write"), text_.npos);
  EXPECT_NE(text_.find("zram swap: not run: left out by --no-zram"), text_.npos);
  EXPECT_NE(svg_.find("shm handler"), svg_.npos);
}

// The suites of `bench objects` on little data, checked as above. Left out: "near", whose data has a fixed size, and
// "paths", which runs until it is in a steady state.
class ObjectsSmokeTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ObjectsSettings settings;
    settings.bytes = 16 << 20;
    settings.local = 0.25;
    settings.accesses = 2000;
    settings.repetitions = 1;
    settings.zram = false;
    settings.quiet = true;
    settings.suites = objects_suites();
    std::erase(settings.suites, "near");
    std::erase(settings.suites, "paths");
    auto measured = measure_objects(settings);
    if (measured.ok()) document_ = *measured;
    else message_ = measured.status().text();
  }
  void SetUp() override { ASSERT_EQ(message_, ""); }

  // The rows of a suite.
  static std::vector<json> rows(const char* suite) {
    std::vector<json> rows;
    for (const json& row : document_["rows"]) {
      if (row["suite"] == suite) rows.push_back(row);
    }
    return rows;
  }
  static double median_of(const json& row, const char* name) { return row[name]["median"]; }

  static inline json document_;
  static inline std::string message_;
};

TEST_F(ObjectsSmokeTest, EverySuiteHasItsRows) {
  std::map<std::string, size_t> counts;
  for (const json& row : document_["rows"]) counts[row["suite"]]++;
  EXPECT_EQ(counts, (std::map<std::string, size_t>{{"misses", 2},
                                                   {"fibers", 2 * 3 * 4},
                                                   {"map", 8 + 2 * 3 * 2 * 8},
                                                   {"free-memory", 2 * 2},
                                                   {"pauses", 2},
                                                   {"eviction", 2 * 4},
                                                   {"near-apps", 3}}));
  EXPECT_EQ(document_["skipped"]["kernel swap"], "left out by --no-zram");
}

TEST_F(ObjectsSmokeTest, RatesAndBytesAreNotZero) {
  for (const json& row : rows("fibers")) {
    EXPECT_GT(median_of(row, "reads_per_s"), 0) << row;
    EXPECT_GT(median_of(row, "bytes_per_useful"), 0) << row;
  }
  for (const json& row : rows("map")) EXPECT_GT(median_of(row, "lookups_per_s"), 0) << row;
  for (const json& row : rows("near-apps")) EXPECT_GT(median_of(row, "ratio"), 0) << row;
}

TEST_F(ObjectsSmokeTest, SkewedLookupsFetchLess) {
  std::map<std::pair<std::string, double>, double> fetched;
  for (const json& row : rows("map")) {
    if (row["transport"] == "shm" && row["fibers"] == 1)
      fetched[{row["configuration"], row["exponent"]}] = median_of(row, "bytes_per_lookup");
  }
  ASSERT_EQ(fetched.size(), 3u * 8u);
  for (const auto& [key, bytes] : fetched) {
    if (key.second == 0) {
      EXPECT_LT((fetched[{key.first, 1.35}]), bytes) << key.first;
    }
  }
}

TEST_F(ObjectsSmokeTest, SharesAreSharesAndQuantilesGrow) {
  for (const json& row : rows("free-memory")) {
    for (const char* series : {"free", "garbage"}) {
      for (double share : row[series]) EXPECT_TRUE(share >= 0 && share <= 1) << series << " " << share;
    }
    EXPECT_LE(median_of(row, "free_min"), median_of(row, "free_median"));
  }
  for (const json& row : rows("pauses")) {
    EXPECT_GT(median_of(row, "p50_us"), 0);
    EXPECT_LE(median_of(row, "p50_us"), median_of(row, "p99_us"));
    EXPECT_LE(median_of(row, "p99_us"), median_of(row, "p999_us"));
  }
  for (const json& row : rows("eviction")) {
    if (row["configuration"] != "plain pages") continue;
    EXPECT_GT(median_of(row, "evictions_per_write"), 0) << row;
    EXPECT_GT(median_of(row, "evictor_cycles_per_byte"), 0) << row;
  }
}

TEST_F(ObjectsSmokeTest, TextAndChartsShowTheResults) {
  std::string text = objects_text(document_), svg = to_svg(objects_charts(document_));
  for (const char* shown :
       {"farside::far_hash_map, 64 fibers, tcp", "pages, no hints, tcp", "evacuator with the program stopped",
        "always in a scope, shm", "binary tree", "kernel swap: not run: left out by --no-zram"})
    EXPECT_NE(text.find(shown), text.npos) << shown;
  EXPECT_NE(svg.find("free, always in a scope"), svg.npos);
  EXPECT_NE(svg.find("evacuator concurrent"), svg.npos);
}

}  // namespace
}  // namespace farside::bench
