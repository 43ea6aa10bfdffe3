#include <gtest/gtest.h>

#include "base/exposition.h"
#include "tools/top/servers.h"
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

// ---- Servers ----

// As a server writes them: so many reads of 3 us and writes of 900 us.
Metrics server_metrics(unsigned reads, unsigned writes) {
  DurationHistogram read, write;
  for (unsigned i = 0; i < reads; i++) read.add(3000);
  for (unsigned i = 0; i < writes; i++) write.add(900'000);
  Exposition out;
  out.gauge("farside_server_capacity_bytes", "Memory lent.", 1 << 30);
  out.gauge("farside_server_connections", "Open.", 3);
  out.counter("farside_server_sent_bytes_total", "Sent.", 4096 * reads);
  out.begin("farside_server_request_duration_seconds", "histogram", "Time.");
  out.sample(read.counts(), {{"operation", "read"}});
  out.sample(write.counts(), {{"operation", "write"}});
  out.begin("farside_server_tenant_stored_bytes", "gauge", "Stored.");
  out.sample(1 << 20, {{"tenant", "host \"a\""}});
  return parse_metrics(out.take());
}

TEST(TopServersTest, RatesAreThoseSinceTheLastLook) {
  std::vector<ServerRow> rows = rows_of("h:1", server_metrics(1200, 2), server_metrics(200, 2), 2);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].lent, 1U << 30);
  EXPECT_EQ(rows[0].clients, 3U);
  EXPECT_DOUBLE_EQ(rows[0].operations, 500);
  EXPECT_DOUBLE_EQ(rows[0].bytes, 4096 * 500);
  EXPECT_NEAR(rows[0].mean_us, 3, 1e-6);
  EXPECT_DOUBLE_EQ(rows[0].p99_us, 4);
  EXPECT_EQ(rows[1].part, "host \"a\"");
  EXPECT_EQ(rows[1].stored, 1U << 20);
  EXPECT_DOUBLE_EQ(rows_of("h:1", server_metrics(1200, 200), server_metrics(200, 2), 2)[0].p99_us, 1024);
  EXPECT_EQ(rows_of("h:1", server_metrics(1200, 2), {}, 2)[0].operations, 0);
}

TEST(TopServersTest, OneThatDoesNotReplyHasARow) {
  std::string text = to_text({{.server = "h:1", .part = "", .replies = false}});
  EXPECT_NE(text.find("h:1     does not reply"), std::string::npos) << text;
  EXPECT_EQ(to_json({.server = "h:1", .part = "b"})["part"], "b");
}

}  // namespace
}  // namespace farside::top
