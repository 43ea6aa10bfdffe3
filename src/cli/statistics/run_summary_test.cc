#include "cli/statistics/run_summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "cli/statistics/run_advice.h"

namespace farside::cli {
namespace {

using nlohmann::json;

constexpr uint64_t kMib = 1 << 20;

// Of one thread, which lost 2 s of 5 s, mostly by fetches.
json paging() {
  return {{"pid", 10},
          {"program", "redis"},
          {"mode", "signal"},
          {"mode_reason", "guard armed"},
          {"transport", "shm"},
          {"seconds", 5.0},
          {"local_bytes", 64 * kMib},
          {"near_peak_bytes", 60 * kMib},
          {"near_mean_bytes", 60 * kMib},
          {"heap_peak_bytes", 200 * kMib},
          {"metadata_bytes", 2 * kMib},
          {"faults", 100},
          {"major_faults", 80},
          {"busiest_thread_fetches", 80},
          {"zero_faults", 20},
          {"evictions", 50},
          {"dirty_evictions", 25},
          {"prefetched", 4000},
          {"prefetch_used", 3000},
          {"bytes_fetched", 3 * kMib},
          {"fault_us", 2000000},
          {"map_us", 150},
          {"evictor_cpu_us", 104},
          {"cycles_per_us", 2000}};
}

json changed(json process, const json& members) {
  process.update(members);
  return process;
}

RunReport report_of(const std::vector<json>& lines) {
  RunReport report;
  for (const json& line : lines) report.add_line(line.dump());
  return report;
}

json idle(int pid) { return {{"pid", pid}, {"program", "sh"}, {"local_bytes", 8 * kMib}, {"heap_peak_bytes", 5}}; }

json begun(int pid) { return {{"event", "begin"}, {"pid", pid}, {"program", "worker"}}; }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string advice_for(const json& process, HugePages huge = HugePages::kAuto) {
  std::string all;
  for (const Advice& advice : advise(process, huge)) all += fmt::format("{} [{:.1f}]\n", advice.text, advice.seconds);
  return all;
}

TEST(SummaryTest, HasMemoryLossAndAdviceInFourLines) {
  std::string text = summary(report_of({paging(), idle(11)}), {.place = FarPlace::kElsewhere});
  for (const char* part : {"redis, the largest of 2 processes: 62.0 MiB of a heap of 200.0 MiB near at most of 64.0 "
                           "MiB allowed: 138.0 MiB "
                           "(69%) of near memory saved, stored on other machines",
                           "2.00 s of 5.00 s (40%) lost in faults; 3.00 MiB fetched",
                           "to do: --local 202M keeps all of the heap near", "saves at most 1.60 s of 5.00 s"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_LE(std::ranges::count(text, '\n'), 4) << text;
}

TEST(SummaryTest, SaysThatNoRealMemoryIsSavedOnThisMachine) {
  EXPECT_TRUE(has(summary(report_of({paging()}), {.place = FarPlace::kThisMachine}),
                  "saved, but no RAM: far memory is in this machine's, too"));
  EXPECT_TRUE(has(summary(report_of({paging()}), {.place = FarPlace::kFile}), "stored in a file of this machine"));
}

TEST(SummaryTest, SaysHowMuchRealMemoryCompressionSaves) {
  StoredMean stored;
  stored.add(100 * kMib, 40 * kMib, 0);
  stored.add(300 * kMib, 160 * kMib, 0);
  EXPECT_TRUE(has(summary(report_of({paging()}), {.place = FarPlace::kThisMachine, .stored = stored}),
                  "138.0 MiB (69%) of near memory saved, 69.0 MiB of RAM: far memory is in this machine's, too, "
                  "compressed to 50%"));
  EXPECT_EQ(stored.to_json()["used_mean_bytes"].get<uint64_t>(), 100 * kMib);
}

TEST(SummaryTest, SaysHowMuchIsInTheOverflowFile) {
  auto text = [](uint64_t used, uint64_t in_file) {
    StoredMean stored;
    stored.add(400 * kMib, used * kMib, in_file * kMib);
    return summary(report_of({paging()}), {.place = FarPlace::kThisMachine, .stored = stored});
  };
  std::string too = "far memory is in this machine's, too";
  EXPECT_TRUE(has(text(100, 200),
                  "103.5 MiB of RAM: " + too + ", 50% of it in the overflow file and the rest compressed to 50%"));
  EXPECT_TRUE(has(text(200, 200), "69.0 MiB of RAM: " + too + ", 50% of it in the overflow file\n"));
  EXPECT_TRUE(has(text(0, 400), "138.0 MiB of RAM: " + too + ", 100% of it in the overflow file\n"));
  EXPECT_TRUE(has(text(396, 4), "but no RAM"));
}

TEST(SummaryTest, NearMemoryIsAtMostTheHeap) {
  json process = changed(
      paging(), {{"near_peak_bytes", 287 * kMib}, {"near_mean_bytes", 287 * kMib}, {"local_bytes", 447 * kMib}});
  std::string text = summary(report_of({process}), {});
  EXPECT_TRUE(has(text, "200.0 MiB of a heap of 200.0 MiB near at most: no near memory saved")) << text;
}

TEST(SummaryTest, TimesOfSeveralThreadsAreThoseOfTheBusiestOne) {
  json process = changed(paging(), {{"busiest_thread_fetches", 20}, {"fault_us", 8000000}});
  EXPECT_DOUBLE_EQ(loss_of(process).seconds, 2);
  EXPECT_TRUE(has(summary(report_of({process}), {}), "(40%) lost in faults of the thread that fetched most"));
  process["fault_us"] = 80'000'000;
  EXPECT_DOUBLE_EQ(loss_of(process).share(), 1);
  EXPECT_DOUBLE_EQ(loss_of({}).share(), 0);
}

// Of means over time, and the loss beside what may be lost. First touches are no loss.
TEST(SummaryTest, AutomaticSizes) {
  json process = changed(paging(), {{"slowdown_percent", 10},
                                    {"heap_mean_bytes", 150 * kMib},
                                    {"near_mean_bytes", 98 * kMib},
                                    {"huge_pages_filled", 3},
                                    {"first_touch_us", 1800000}});
  std::string text = summary(report_of({process}), {.place = FarPlace::kElsewhere});
  for (const char* part :
       {"redis: 100.0 MiB of a heap of 150.0 MiB near on average: 50.0 MiB (33%) of near memory saved",
        "0.20 s of 5.00 s lost in faults, of at most 0.48 s (--slowdown 10%); 3.00 MiB fetched",
        "to do: nothing; a higher --slowdown saves more near memory"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  text = summary(report_of({changed(process, {{"first_touch_us", 0}})}), {});
  EXPECT_TRUE(has(text, "2.00 s of 5.00 s lost in faults, of at most 0.30 s")) << text;
  EXPECT_TRUE(has(text, "to do: --local 100% keeps all of it near")) << text;
  text = summary(report_of({changed(process, {{"evictions", 0}})}), {});
  EXPECT_TRUE(has(text, "--local auto found nothing to save in a heap of 200.0 MiB")) << text;
}

TEST(SummaryTest, ReportsThatNothingWasEvicted) {
  std::string text = summary(report_of({idle(1)}), {});
  EXPECT_EQ(text, "farside: sh: nothing was evicted: the managed heap of 5 B never exceeded --local (8.00 MiB)\n");
}

TEST(SummaryTest, VerboseHasTheBreakdown) {
  std::string text = summary(report_of({paging(), idle(11)}), {.wait_status = SIGTERM, .program = 10, .verbose = true});
  for (const char* part :
       {"redis: signal mode (guard armed), shm, 5.0 s", "2 processes", "of 64.0 MiB allowed", "100 faults: 80 fetched",
        "4000 pages prefetched, 75% of them used", "50 evictions, 50% dirty", "2.00 s in faults", "map 1.50",
        "processor 2.08", "1.02 cycles a byte"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_TRUE(text.ends_with("farside: the program was ended by signal 15 (Terminated)\n")) << text;
}

TEST(SummaryTest, WhatAFullServerRefusedComesBeforeAdvice) {
  EXPECT_FALSE(has(summary(report_of({paging()}), {}), "refused"));
  RunReport report = report_of(
      {paging(), {{"pid", 12}, {"refused_reservations", 5600}}, {{"pid", 13}, {"refused_reservations", 100}}});
  std::string text = summary(report, {});
  size_t refused = text.find("farside: far memory was full: 5700 requests for memory were refused\n");
  EXPECT_LT(refused, text.find("to do")) << text;
}

TEST(SummaryTest, SaysWhatIsNotManagedIfThatIsMuch) {
  json small = changed(idle(1), {{"heap_peak_bytes", 900}, {"unmanaged_private_bytes", 4000000}});
  EXPECT_FALSE(has(summary(report_of({small}), {}), "cannot be far"));
  json much = changed(small, {{"unmanaged_private_bytes", 4 * kMib}, {"unmanaged_shared_bytes", 8 * kMib}});
  EXPECT_TRUE(
      has(summary(report_of({much}), {}), "cannot be far: at most 8.00 MiB of shared memory, 4.00 MiB of stacks"));
}

TEST(SummaryTest, NamesProgramsThatRanNativelyAndCountsWhatIsLost) {
  RunReport report = report_of({begun(10),
                                begun(11),
                                begun(12),
                                idle(10),
                                {{"event", "native"}, {"program", "go"}, {"reason", "statically linked"}}});
  std::string text = summary(report, {});
  EXPECT_TRUE(has(text, "natively, without far memory: go (statically linked)\n")) << text;
  EXPECT_TRUE(has(text, "2 processes ended without a report, as by a signal; their counters")) << text;
  text = summary(report, {.wait_status = SIGKILL, .program = 12});
  EXPECT_TRUE(has(text, "1 process ended without a report, as by a signal; its counters")) << text;
  EXPECT_TRUE(text.ends_with("ended by signal 9 (Killed); its own counters are lost\n")) << text;
}

TEST(SummaryTest, TheReasonOfTheEndIsTheLastLine) {
  std::string lost = R"({"event":"failure","pid":10,"program":"job","reason":"memory server x is lost [F202]"})";
  RunReport report = report_of({begun(10), json::parse(lost), json::parse(lost)});
  report.add_last_seen(paging());
  std::string text = summary(report, {.wait_status = 134 << 8, .program = 10});
  EXPECT_TRUE(text.ends_with("\nfarside: far memory was lost: memory server x is lost [F202]\n")) << text;
  EXPECT_EQ(text.find("far memory was lost"), text.rfind("far memory was lost"));
  EXPECT_TRUE(has(text, "2.00 s of 5.00 s")) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 4) << text;
  text = summary(report_of({paging()}), {.wait_status = SIGKILL, .program = 10});
  EXPECT_TRUE(text.ends_with("\nfarside: the program was ended by signal 9 (Killed)\n")) << text;
  EXPECT_EQ(summary({}, {}), "farside: no process wrote a report: none ended by exit or from main\n");
}

TEST(AdviceTest, NothingWhereLittleIsLost) {
  EXPECT_EQ(advice_for(changed(paging(), {{"fault_us", 100000}})), "");
  EXPECT_TRUE(has(summary(report_of({changed(paging(), {{"fault_us", 100000}})}), {}), "to do: nothing"));
}

TEST(AdviceTest, MoreNearMemoryWhereFetchesCost) {
  EXPECT_TRUE(advice_for(paging()).starts_with("--local 202M keeps all of the heap near"));
  EXPECT_FALSE(has(advice_for(changed(paging(), {{"local_bytes", 300 * kMib}})), "--local"));
}

TEST(AdviceTest, HugePagesWhereFirstTouchesCost) {
  json process = changed(paging(), {{"major_faults", 10}, {"zero_faults", 90}});
  EXPECT_TRUE(has(advice_for(process, HugePages::kNever),
                  "--huge auto or always: memory that is first touched comes in 2 MiB [1.8]"));
  EXPECT_TRUE(has(advice_for(changed(process, {{"local_bytes", 16 * kMib}})), "--huge always and --local 32M or more"));
  EXPECT_FALSE(has(advice_for(changed(process, {{"huge_pages_filled", 3}})), "--huge"));
}

TEST(AdviceTest, HintsAndEvictorsByWhatTheyCanSave) {
  EXPECT_TRUE(has(advice_for(changed(paging(), {{"protection_faults", 100}})), "hints for writing"));
  EXPECT_TRUE(has(advice_for(changed(paging(), {{"wait_frame_us", 1000000}})),
                  "evictors=2 or more, if processors are idle: threads waited for free frames [1.0]"));
}

TEST(AdviceTest, AnotherServerAndObjectsWhereTheTransportIsSlow) {
  json process = changed(paging(), {{"fetch_us", 1600000}, {"prefetched", 0}});
  std::string text = advice_for(process);
  EXPECT_TRUE(has(text, "a nearer or less busy server: a fetch took 20000 us, 50 are usual over TCP [1.6]")) << text;
  EXPECT_TRUE(has(text, "far objects (docs/guide/objects.md)")) << text;
  EXPECT_FALSE(has(advice_for(changed(process, {{"prefetched", 4000}})), "far objects"));
}

TEST(AdviceTest, NoPrefetchingWhereItIsNotUsed) {
  EXPECT_TRUE(has(advice_for(changed(paging(), {{"prefetch_used", 100}})),
                  "--tune prefetch=off: 15.2 MiB fetched ahead were not used"));
}

}  // namespace
}  // namespace farside::cli
