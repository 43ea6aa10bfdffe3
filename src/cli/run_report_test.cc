#include "cli/run_report.h"

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

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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

TEST(ReportTest, SummaryHasModeMemoryAndTraffic) {
  std::string summary = two_processes().summary(kExited);
  for (const char* part : {"redis: signal mode (guard armed), shm, 2.5 s", "2 processes", "of 64.0 MiB allowed",
                           "101 faults: 70 fetched", "40 pages prefetched, 75% of them used", "52 evictions, 48% dirty",
                           "2.00 s in faults", "map 1.49", "processor 2.00", "0.98 cycles a byte"}) {
    EXPECT_TRUE(has(summary, part)) << part << "\n" << summary;
  }
}

TEST(ReportTest, ReportsThatNothingWasEvicted) {
  RunReport report;
  report.add_line(R"({"program":"true","mode":"signal","local_bytes":1048576})");
  EXPECT_TRUE(has(report.summary(kExited), "nothing was evicted: the managed heap never exceeded --local (1.00 MiB)"));
}

TEST(ReportTest, CountsWhatAFullServerRefused) {
  RunReport report = two_processes();
  EXPECT_FALSE(has(report.summary(kExited), "refused"));
  report.add_line(R"({"pid":12,"refused_reservations":5600})");
  report.add_line(R"({"pid":13,"refused_reservations":100})");
  EXPECT_TRUE(has(report.summary(kExited), "farside: far memory was full: 5700 requests for memory were refused\n"));
}

TEST(ReportTest, ExplainsMissingCounters) {
  EXPECT_TRUE(has(RunReport().summary(SIGKILL), "ended by signal 9"));
  EXPECT_TRUE(has(RunReport().summary(kExited), "no process wrote a report"));
  EXPECT_EQ(RunReport::read("/no/such/report").process_count(), 0U);
}

TEST(ReportTest, SaysWhatIsNotManagedIfThatIsMuch) {
  RunReport report;
  report.add_line(R"({"program":"x","heap_peak_bytes":900,"unmanaged_private_bytes":4000000})");
  EXPECT_FALSE(has(report.summary(kExited), "cannot be far"));
  report.add_line(
      R"({"program":"y","heap_peak_bytes":9000,"unmanaged_private_bytes":4194304,"unmanaged_shared_bytes":8388608})");
  EXPECT_TRUE(has(report.summary(kExited), "cannot be far: at most 8.00 MiB of shared memory, 4.00 MiB of stacks"));
}

TEST(ReportTest, NamesProgramsThatRanNatively) {
  RunReport report = two_processes();
  for (int i = 0; i < 2; i++) report.add_line(R"({"event":"native","program":"go","reason":"statically linked"})");
  report.add_line(R"({"event":"native","program":"sudo","reason":"setuid or setgid"})");
  EXPECT_TRUE(has(report.summary(kExited),
                  "natively, without far memory: go (statically linked, 2 times), sudo (setuid or setgid)\n"));
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
  EXPECT_TRUE(has(report.summary(kExited), "2 processes ended without a report, as by a signal; their counters"));
  EXPECT_TRUE(has(report.summary(SIGKILL, 13), "1 process ended without a report, as by a signal; its counters"));
  EXPECT_TRUE(has(report.summary(SIGKILL, 13), "ended by signal 9 (Killed); its own counters are lost"));
  EXPECT_TRUE(has(report.summary(SIGTERM, 10), "ended by signal 15 (Terminated)\n"));
  EXPECT_EQ(report.to_json({"x"}, kExited)["ended_without_report"], 2);
  report.add_line(fmt::format(R"({{"event":"begin","pid":{},"program":"self"}})", getpid()));
  report.forget_running_processes();
  EXPECT_FALSE(has(report.summary(kExited), "3 processes"));
}

TEST(ReportTest, TheReasonOfALossIsTheLastLineAndInTheJson) {
  RunReport report;
  report.add_line(R"({"event":"begin","pid":10,"program":"job"})");
  report.add_line(R"({"pid":9,"program":"sh","local_bytes":1048576})");
  for (int pid : {10, 11})
    report.add_line(fmt::format(
        R"({{"event":"failure","pid":{},"program":"job","reason":"memory server x is lost [F202]"}})", pid));
  std::string summary = report.summary(134 << 8, 10);
  EXPECT_TRUE(summary.ends_with("farside: far memory was lost: memory server x is lost [F202]\n")) << summary;
  EXPECT_EQ(summary.find("far memory was lost"), summary.rfind("far memory was lost"));
  EXPECT_FALSE(has(summary, "nothing was evicted")) << summary;
  auto json = report.to_json({"job"}, 134 << 8);
  ASSERT_EQ(json["failures"].size(), 2U);
  EXPECT_EQ(json["failures"][0]["pid"], 10);
  EXPECT_EQ(json["failures"][0]["reason"], "memory server x is lost [F202]");
}

TEST(ReportTest, SkipsBrokenLinesAndWrongTypes) {
  RunReport report;
  report.add_line(R"({"pid":1,"faults":)");
  report.add_line("[1,2]");
  report.add_line("");
  report.add_line(R"({"pid":1,"faults":"many","program":7})");
  EXPECT_EQ(report.process_count(), 1U);
  EXPECT_EQ(report.totals()["faults"], 0);
  EXPECT_FALSE(report.summary(kExited).empty());
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
