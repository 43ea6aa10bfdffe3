#include "cli/run_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "report/files.h"

namespace farside::cli {
namespace {

using nlohmann::json;

TEST(RunMetricsTest, CountersAndSizesHaveBaseUnits) {
  json totals = {
      {"faults", 7}, {"bytes_fetched", 4096}, {"fault_us", 1'500'000}, {"fault_p99_us", 250}, {"repaired_slabs", 5}};
  json repairing = {{"heap_bytes", 10}, {"degraded_slabs", 3}, {"repair_seconds_left", 1.5}};
  Exposition out;
  append_run_metrics(
      totals,
      {{1, {{"heap_bytes", 100}, {"near_bytes", 30}, {"metadata_bytes", 5}, {"local_bytes", 400}, {"evictions", 1}}},
       {2, repairing}},
      nullptr, &out);
  Pressure pressure;
  pressure.add({{1, {{"seconds", 2.0}, {"fault_us", 500'000}}}});
  append_pressure(pressure, &out);
  std::string text = out.take();
  for (const char* line :
       {"\nfarside_run_budget_bytes 105\n", "\nfarside_run_saved_bytes 65\n", "\nfarside_run_pressure_1s 0.25\n",
        "\nfarside_run_pressure_10s 0.25\n", "\nfarside_run_pressure_60s 0.25\n", "\nfarside_run_faults_total 7\n",
        "\nfarside_run_fetched_bytes_total 4096\n", "\nfarside_run_fault_seconds_total 1.5\n",
        "\nfarside_run_heap_bytes 110\n", "\nfarside_run_far_bytes 80\n", "\nfarside_run_processes 2\n",
        "\nfarside_run_ended 0\n", "\nfarside_run_degraded_slabs 3\n", "\nfarside_run_repair_left_seconds 1.5\n",
        "\nfarside_run_repaired_slabs_total 5\n", "\nfarside_run_fault_duration_seconds{quantile=\"0.99\"} 0.00025\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

// Processes report when they end; the file is replaced as a whole and keeps the last values.
TEST(RunMetricsTest, TheFileHasTheSumOfTheReports) {
  std::string folder = std::filesystem::temp_directory_path() / ("farside-metrics-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::string file = folder + "/run.prom", reports = folder + "/reports";
  ASSERT_TRUE(write_file(reports, "").ok());
  RunWatch watch(reports);
  auto metrics = RunMetrics::start({"", file}, "a \"b\"", watch, [](Exposition* out) { out->gauge("x", "X.", 1); });
  ASSERT_TRUE(metrics.ok()) << metrics.status().text();
  std::string labels = "{program=\"a \\\"b\\\"\",launcher=\"" + std::to_string(getpid()) + "\"";
  EXPECT_NE(read_file(file).find("farside_run_faults_total" + labels + "} 0\n"), std::string::npos) << read_file(file);
  ASSERT_TRUE(
      write_file(reports, "{\"pid\":5,\"faults\":3}\n{\"event\":\"begin\",\"pid\":6}\n{\"pid\":6,\"faults\":4}\n")
          .ok());
  watch.start([] {});
  watch.stop();
  (*metrics)->finish(1 << 8);
  std::string text = read_file(file);
  for (const char* line : {"farside_run_faults_total", "farside_run_exit_status", "farside_run_ended", "x"})
    EXPECT_NE(text.find(std::string(line) + labels), std::string::npos) << line;
  EXPECT_NE(text.find("farside_run_faults_total" + labels + "} 7\n"), std::string::npos);
  EXPECT_NE(text.find("farside_run_exit_status" + labels + "} 1\n"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(RunMetricsTest, OutputsThatCannotBeUsedAreReported) {
  RunWatch watch("");
  EXPECT_NE(std::string(RunMetrics::start({"", "/nowhere/run.prom"}, "p", watch, [](Exposition*) {}).status().text())
                .find("/nowhere"),
            std::string::npos);
  auto wrong = RunMetrics::start({"127.0.0.1:99999", ""}, "p", watch, [](Exposition*) {});
  EXPECT_NE(std::string(wrong.status().text()).find("HOST:PORT"), std::string::npos);
}

TEST(RunMetricsTest, TheFirstLooksAreSoon) {
  EXPECT_EQ(time_before_write(0).count(), 250);
  EXPECT_EQ(time_before_write(2).count(), 1000);
  for (unsigned number : {5u, 100u, ~0u}) EXPECT_EQ(time_before_write(number).count(), 5000);
}

}  // namespace
}  // namespace farside::cli
