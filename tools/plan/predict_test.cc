#include "tools/plan/predict.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tools/plan/lackey.h"
#include "tools/plan/predict_report.h"

namespace farside::plan {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(LackeyTest, TextMayBeSplitAnywhere) {
  const std::string text =
      "==12== Lackey, an example Valgrind tool\n"
      "I  0401ab70,3\n"
      " S 1fff000758,8\n"
      " L 04abc81d,1\n"
      "I  0401ab73,5\n"
      " M 00001000,16\n"
      "I  0401ab78,5\n"
      " L 00002000,8\n"
      " M 00002000,8\n"
      "I  0401ab7d,5\n"
      " L 00003000,8\n"
      " S 00004000,8\n"
      "I  0401ab82,5\n"
      " L 00005000,8\n"
      " L nonsense\n"
      "\n"
      "==12== Exit code:       0\n";
  using Access = std::tuple<uint64_t, unsigned, bool>;
  const std::vector<Access> expected = {{0x1fff000758, 8, true}, {0x04abc81d, 1, false}, {0x1000, 16, true},
                                        {0x2000, 8, true},       {0x3000, 8, false},     {0x4000, 8, true},
                                        {0x5000, 8, false}};
  for (size_t piece : {1, 2, 7, 64, 1000}) {
    LackeyReader reader;
    std::vector<Access> seen;
    for (size_t at = 0; at < text.size(); at += piece) {
      reader.read(std::string_view(text).substr(at, piece),
                  [&](uint64_t address, unsigned bytes, bool write) { seen.emplace_back(address, bytes, write); });
    }
    reader.finish([&](uint64_t address, unsigned bytes, bool write) { seen.emplace_back(address, bytes, write); });
    EXPECT_EQ(seen, expected) << piece;
    EXPECT_EQ(reader.instructions(), 5u);
  }
}

constexpr uint64_t kPage = 4096, kPages = 4096, kLine = 64;

// Writes all pages once, then reads a word at every multiple of `step`, `rounds` times.
Observed loop(unsigned rounds, uint64_t step) {
  Observed observed;
  for (uint64_t page = 0; page < kPages; page++) observed.observation.access(page * kPage, 8, true);
  for (unsigned round = 0; round < rounds; round++) {
    for (uint64_t at = 0; at < kPages * kPage; at += step) observed.observation.access(at, 8, false);
  }
  observed.observation.access_to_near();
  observed.seconds = 20;
  return observed;
}

TEST(ObservationTest, ALoopMissesOncePerBlockAndRound) {
  Observed observed = loop(3, kLine);
  const Observation& seen = observed.observation;
  EXPECT_EQ(seen.far_accesses(), kPages + 3 * kPages * kPage / kLine);
  EXPECT_EQ(seen.accesses(), seen.far_accesses() + 1);
  EXPECT_EQ(seen.heap_bytes(), kPages * kPage);
  for (unsigned bits : {12, 14, 16, 18}) {
    EXPECT_DOUBLE_EQ(seen.misses(bits, seen.heap_bytes() / 2).value, 3.0 * static_cast<double>(kPages * kPage >> bits))
        << bits;
    EXPECT_EQ(seen.misses(bits, seen.heap_bytes()).value, 0) << bits;
  }
  // All lines in two rounds; in the first round only those that were written are accessed again.
  EXPECT_NEAR(seen.misses(kLineBits, seen.heap_bytes() / 2).value, 2 * kPages * kPage / kLine,
              0.06 * kPages * kPage / kLine);
  EXPECT_EQ(seen.misses(kLineBits, seen.heap_bytes()).value, 0);
}

TEST(ObservationTest, AnAccessMayCoverTwoLines) {
  Observation seen;
  seen.access(kLine - 4, 8, false);
  EXPECT_EQ(seen.far_accesses(), 2);
  seen.access(kPage - 4, 8, true);
  EXPECT_EQ(seen.heap_bytes(), 2 * kPage);
}

TEST(ObservationTest, AWriteAfterAReadOfTheSameLineCounts) {
  Observation seen;
  for (int round = 0; round < 3; round++) {
    for (uint64_t page = 0; page < 2 * kPages; page++) {
      seen.access(page * kPage, 8, false);
      seen.access(page * kPage, 8, true);
    }
  }
  // Once for each page that did not stay near. Index 9: 50 % near.
  EXPECT_NEAR(seen.near().events(9)[kUpgrade], 0.55 * 2 * kPages, 0.05 * 2 * kPages);
}

const json& find_system(const json& prediction, const std::string& name) {
  for (const json& system : prediction["systems"]) {
    if (system["name"] == name) return system;
  }
  ADD_FAILURE() << name << " is missing";
  return prediction;
}

const json& at(const json& points, unsigned share) {
  for (const json& point : points) {
    if (point["share"] == share) return point;
  }
  ADD_FAILURE() << share << "% is missing";
  return points;
}

// Fetches cost 2 us per page over shm.
json predict(const Observed& observed) {
  FarsidePrice price;
  price.us[kFetch] = price.us[kStreamFetch] = price.stream_fetch_at_work = 2;
  json made = prediction_of(observed, {{1, 1, 1}, 1}, {{"shm", {price, price}}}, {32768, 1 << 20}, 0.1);
  made["machine"] = {{"processor", "P"},    {"cores", 2},    {"kernel", "6"}, {"memory_bytes", 1 << 30},
                     {"load_average", "0"}, {"commit", "c"}, {"date", "d"}};
  made["settings"] = {{"slowdown", 0.1}, {"seconds", 60}};
  return made;
}

TEST(PredictTest, SlowdownIsMissesTimesPriceOverNativeTime) {
  json made = predict(loop(20, kPage / 8));
  double misses = 20 * kPages;
  // A part of the loop stays near.
  EXPECT_NEAR(at(find_system(made, "Farside, shm")["points"], 50)["slowdown"], 1 + 2e-6 * 0.6 * misses, 2e-2);
  EXPECT_NEAR(at(find_system(made, "LegoOS")["points"], 50)["slowdown"], 1 + 10e-6 * misses, 1e-9);
  EXPECT_EQ(at(find_system(made, "LegoOS")["points"], 100)["slowdown"], 1);
  double accesses = made["observed"]["accesses"];
  EXPECT_NEAR(at(find_system(made, "LegoOS")["points"], 50)["amat_ns"],
              made["local_amat_ns"].get<double>() + 10e3 * misses / accesses, 1e-6);
}

TEST(PredictTest, StreamsCostLessIfTheProgramWorksBetweenFaults) {
  FarsidePrice price;
  price.us[kStreamFetch] = 3;
  price.stream_fetch_at_work = 1;
  EXPECT_EQ(price.at_work(0)[kStreamFetch], 3);
  EXPECT_EQ(price.at_work(FarsidePrice::kWorkUs / 2)[kStreamFetch], 2);
  EXPECT_EQ(price.at_work(100)[kStreamFetch], 1);
}

TEST(PredictTest, ALoopIsFastOnlyWithMostOfItNear) {
  json keep = find_system(predict(loop(40, kPage / 8)), "Farside, shm")["keep"];
  EXPECT_GT(keep["share"], 60);
  EXPECT_LT(keep["share"], 100);
  // One round costs 8 ms, of one second.
  EXPECT_EQ(find_system(predict(loop(1, kPage / 8)), "Farside, shm")["keep"]["share"], 5);
}

TEST(PredictTest, FirstAccessesOfFewLinesHitTheCache) {
  Observed observed;
  for (int i = 0; i < 100000; i++) observed.observation.access(static_cast<uint64_t>(i % 100) * kLine, 8, false);
  EXPECT_NEAR(predict(observed)["local_amat_ns"], 1.5, 0.2);
}

TEST(PredictTest, TheAnswerIsOneLineAtTheEnd) {
  json made = predict(loop(20, kPage / 8));
  std::string text = predict_text(made);
  EXPECT_TRUE(has(text, "at most 10 % slower: keep ")) << text;
  EXPECT_TRUE(has(text, " % local (95 % interval ")) << text;
  EXPECT_TRUE(text.ends_with(", over Farside, shm\n")) << text;
  EXPECT_TRUE(has(text, "64 B")) << text;
  EXPECT_TRUE(has(text, "2 MiB")) << text;
}

TEST(PredictTest, ARunThatWasCutOffHasNoSlowdown) {
  Observed observed = loop(2, kPage / 8);
  observed.cut_off = true;
  json made = predict(observed);
  EXPECT_FALSE(made["systems"][0].contains("keep"));
  std::string text = predict_text(made);
  EXPECT_TRUE(has(text, "cut off after 20 s, so there are no slowdowns")) << text;
  EXPECT_TRUE(has(text, "ns per access")) << text;
  EXPECT_EQ(predict_charts(made).size(), 1u);
}

TEST(PredictTest, ChecksAreComparedWithPredictions) {
  json made = predict(loop(20, kPage / 8));
  double predicted = at(find_system(made, "Farside, shm")["points"], 50)["slowdown"];
  json measured = {
      {"native_s", {{"min", 2.0}}},
      {"points", {{{"share", 50}, {"seconds", {{"min", 2.2}}}}, {{"share", 52}, {"seconds", {{"min", 2}}}}}}};
  add_check(measured, &made);
  EXPECT_DOUBLE_EQ(made["checked"][0]["measured"], 1.1);
  EXPECT_DOUBLE_EQ(made["checked"][0]["predicted"], 1 + (predicted - 1) / 2);
  EXPECT_TRUE(has(predict_text(made), "checked: slowdown")) << predict_text(made);
  auto charts = predict_charts(made);
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0].series.size(), charts[1].series.size());
  EXPECT_EQ(charts[1].series.back().name, "measured");
}

TEST(PredictTest, CachesAreSortedBySize) {
  std::vector<double> sizes = cache_sizes();
  EXPECT_TRUE(std::ranges::is_sorted(sizes));
}

}  // namespace
}  // namespace farside::plan
