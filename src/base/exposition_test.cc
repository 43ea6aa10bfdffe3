#include "base/exposition.h"

#include <gtest/gtest.h>

namespace farside {
namespace {

TEST(ExpositionTest, WritesSamplesWithEscapedLabels) {
  Exposition out;
  out.gauge("farside_bytes", "Bytes.", uint64_t{7});
  out.begin("farside_refusals_total", "counter", "Refusals.");
  out.sample(1.5, {{"reason", "a\"b\\c\nd"}, {"peer", "x"}});
  EXPECT_EQ(out.take(),
            "# HELP farside_bytes Bytes.\n# TYPE farside_bytes gauge\nfarside_bytes 7\n"
            "# HELP farside_refusals_total Refusals.\n# TYPE farside_refusals_total counter\n"
            "farside_refusals_total{reason=\"a\\\"b\\\\c\\nd\",peer=\"x\"} 1.5\n");
}

TEST(ExpositionTest, HistogramsCountDurationsUpToEachBound) {
  DurationHistogram histogram;
  for (uint64_t ns : {0, 999, 1000, 3'999, 4'000, 20'000}) histogram.add(ns);
  histogram.add(uint64_t{100'000'000'000});
  Exposition out;
  out.begin("farside_seconds", "histogram", "Durations.");
  out.sample(histogram.counts(), {{"operation", "read"}});
  std::string text = out.take();
  for (const char* line :
       {"farside_seconds_bucket{operation=\"read\",le=\"1e-06\"} 2\n",
        "farside_seconds_bucket{operation=\"read\",le=\"4e-06\"} 4\n",
        "farside_seconds_bucket{operation=\"read\",le=\"1.6e-05\"} 5\n",
        "farside_seconds_bucket{operation=\"read\",le=\"6.4e-05\"} 6\n",
        "farside_seconds_bucket{operation=\"read\",le=\"4.194304\"} 6\n",
        "farside_seconds_bucket{operation=\"read\",le=\"+Inf\"} 7\n", "farside_seconds_count{operation=\"read\"} 7\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace farside
