#include "cli/statistics/run_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace farside::cli {
namespace {

constexpr int kExited = 0;
constexpr int kExitedWith3 = 3 << 8;

RunReport two_processes() {
  RunReport report;
  report.add_line(
      R"({"pid":10,"program":"redis","mode":"signal","mode_reason":"guard armed","transport":"shm",)"
      R"("local_bytes":67108864,"near_peak_bytes":60000000,"far_peak_bytes":300,"heap_peak_bytes":900,)"
      R"("faults":100,"major_faults":70,"evictions":50,"dirty_evictions":25,"prefetched":40,)"
      R"("prefetch_used":30,"bytes_fetched":4096,"fault_us":2000000,"map_us":150,"evictor_cpu_us":104,"cycles_per_us":2000,"seconds":2.5})");
  report.add_line(R"({"pid":11,"program":"sh","faults":1,"evictions":2,"far_peak_bytes":700,"heap_peak_bytes":5})");
  return report;
}

TEST(ReportTest, AMissingFileIsAnEmptyReport) { EXPECT_EQ(RunReport::read("/no/such/report").process_count(), 0U); }

TEST(ReportTest, SumsCountersAndKeepsLargestPeaks) {
  auto totals = two_processes().totals();
  EXPECT_EQ(totals["faults"], 101);
  EXPECT_EQ(totals["evictions"], 52);
  EXPECT_EQ(totals["far_peak_bytes"], 700);
  EXPECT_EQ(totals["heap_peak_bytes"], 900);
  EXPECT_EQ(totals["seconds"], 2.5);
  EXPECT_EQ(totals["forks"], 0);
}

TEST(ReportTest, TheMainProcessHasTheLargestHeap) { EXPECT_EQ(two_processes().main_process()["program"], "redis"); }

TEST(ReportTest, ListsProgramsThatRanNatively) {
  RunReport report = two_processes();
  EXPECT_EQ(report.natives(), "");
  for (int i = 0; i < 2; i++) report.add_line(R"({"event":"native","program":"go","reason":"statically linked"})");
  report.add_line(R"({"event":"native","program":"sudo","reason":"setuid or setgid"})");
  EXPECT_EQ(report.natives(), "go (statically linked, 2 times), sudo (setuid or setgid)");
  EXPECT_EQ(report.process_count(), 2U);
  auto json = report.to_json({"x"}, kExited);
  EXPECT_EQ(json["native"].size(), 2U);
  EXPECT_EQ(json["native"][0]["times"], 2);
}

TEST(ReportTest, CountsProcessesWithoutReport) {
  RunReport report = two_processes();
  for (int pid : {10, 11, 12, 13, 14})
    report.add_line(fmt::format(R"({{"event":"begin","pid":{},"program":"worker"}})", pid));
  report.add_line(R"({"event":"exec","pid":12,"program":"worker"})");
  report.add_line(R"({"pid":10,"program":"redis"})");
  report.add_line(R"({"pid":11,"program":"sh"})");
  EXPECT_EQ(report.lost(0), 2U);
  EXPECT_EQ(report.lost(13), 1U);
  EXPECT_EQ(report.to_json({"x"}, kExited)["ended_without_report"], 2);
  report.add_line(fmt::format(R"({{"event":"begin","pid":{},"program":"self"}})", getpid()));
  report.forget_running_processes();
  EXPECT_LE(report.lost(0), 2U);
}

TEST(ReportTest, AProcessThatWasSeenCountsWithoutAReport) {
  RunReport report;
  for (int pid : {10, 11}) report.add_line(fmt::format(R"({{"event":"begin","pid":{}}})", pid));
  report.add_line(R"({"pid":10,"faults":5})");
  for (int pid : {10, 11}) report.add_last_seen({{"pid", pid}, {"faults", 100}});
  EXPECT_EQ(report.process_count(), 2U);
  EXPECT_EQ(report.totals()["faults"], 105);
  EXPECT_EQ(report.lost(0), 0U);
  auto json = report.to_json({"x"}, SIGKILL);
  EXPECT_EQ(json["ended_without_report"], 1);
  EXPECT_TRUE(json["processes"][1]["ended_without_report"]);
}

TEST(ReportTest, TheReasonOfTheEndIsInTheJson) {
  RunReport report = two_processes();
  EXPECT_TRUE(report.to_json({"job"}, kExited)["reason"].is_null());
  EXPECT_EQ(report.to_json({"job"}, SIGKILL)["reason"], "the program was ended by signal 9 (Killed)");
  for (int pid : {10, 11})
    report.add_line(fmt::format(
        R"({{"event":"failure","pid":{},"program":"job","reason":"memory server x is lost [F202]"}})", pid));
  auto json = report.to_json({"job"}, 134 << 8);
  EXPECT_EQ(json["reason"], "far memory was lost: memory server x is lost [F202]");
  ASSERT_EQ(json["failures"].size(), 2U);
  EXPECT_EQ(json["failures"][0]["pid"], 10);
  EXPECT_EQ(json["failures"][0]["reason"], "memory server x is lost [F202]");
  EXPECT_EQ(report.failures().size(), 1U);
}

TEST(ReportTest, SkipsBrokenLinesAndWrongTypes) {
  RunReport report;
  report.add_line(R"({"pid":1,"faults":)");
  report.add_line("[1,2]");
  report.add_line("");
  report.add_line(R"({"pid":1,"faults":"many","program":7})");
  EXPECT_EQ(report.process_count(), 1U);
  EXPECT_EQ(report.totals()["faults"], 0);
}

TEST(ReportTest, JsonHoldsProgramEndAndProcesses) {
  auto json = two_processes().to_json({"redis", "--save", ""}, kExitedWith3);
  EXPECT_EQ(json["program"][2], "");
  EXPECT_EQ(json["exit_status"], 3);
  EXPECT_TRUE(json["signal"].is_null());
  EXPECT_EQ(json["processes"].size(), 2U);
  EXPECT_EQ(json["totals"]["faults"], 101);
  EXPECT_EQ(RunReport().to_json({"x"}, SIGKILL)["signal"], SIGKILL);
}

}  // namespace
}  // namespace farside::cli
