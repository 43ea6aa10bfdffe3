#include <gtest/gtest.h>

#include "tools/top/table.h"

namespace farside::top {
namespace {

using nlohmann::json;

json report(double seconds, unsigned scale) {
  return {{"pid", 7},
          {"program", "job"},
          {"seconds", seconds},
          {"heap_bytes", 100 << 20},
          {"near_bytes", 30 << 20},
          {"local_bytes", 32 << 20},
          {"faults", 100 * scale},
          {"major_faults", 100 * scale},
          {"busiest_thread_fetches", 100 * scale},
          {"bytes_fetched", 4096 * scale},
          {"fault_us", 500'000 * scale}};
}

Row row(const char* program, uint64_t pid, double pressure) {
  return {.pid = pid, .run = 1, .program = program, .near = pid << 20, .pressure = pressure};
}

TEST(TopTest, RatesAreThoseOfTheLastLooksAndPressureThatOfAllReports) {
  Row row = row_of({report(1, 1), report(3, 2), report(5, 6)});
  EXPECT_EQ(row.near, 30U << 20);
  EXPECT_EQ(row.far, 70U << 20);
  EXPECT_DOUBLE_EQ(row.faults, 200);
  EXPECT_DOUBLE_EQ(row.bytes, 8192);
  EXPECT_DOUBLE_EQ(row.pressure, 2.5 / 4);
}

TEST(TopTest, OneReportHasNoRates) {
  Row row = row_of({report(1, 1)});
  EXPECT_EQ(row.faults, 0);
  EXPECT_EQ(row.pressure, 0);
}

TEST(TopTest, NearIsAtMostTheHeap) {
  json more = report(1, 1);
  more["near_bytes"] = 200 << 20;
  EXPECT_EQ(row_of({more}).near, 100U << 20);
  EXPECT_EQ(row_of({more}).far, 0U);
}

TEST(TopTest, RowsAreSortedAndFiltered) {
  std::vector<Row> rows = {row("redis", 3, 0.1), row("sort", 1, 0.5), row("redis-cli", 2, 0.3)};
  auto pids = [&](const View& view) {
    std::vector<uint64_t> all;
    for (const Row& each : arrange(rows, view)) all.push_back(each.pid);
    return all;
  };
  EXPECT_EQ(pids({}), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(pids({.sort = "near"}), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(pids({.sort = "program", .reversed = true}), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(pids({.filter = "redis"}), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(pids({.filter = "3"}), (std::vector<uint64_t>{3}));
}

TEST(TopTest, TheTextHasALineForEachRow) {
  std::vector<Row> rows = {row("sort", 1, 0.5), row("redis", 3, 0)};
  rows[0].advice = "--local 90M";
  rows[1].replies = false;
  std::string text = to_text(rows);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_NE(text.find("50%"), std::string::npos);
  EXPECT_NE(text.find("  --local 90M\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("  does not reply\n")) << text;
  EXPECT_EQ(summary_line(rows), "farside top: 1 run, 2 processes; near 4.00 MiB, far 0 B");
  EXPECT_EQ(to_json(rows[0])["pressure"], 0.5);
}

}  // namespace
}  // namespace farside::top
