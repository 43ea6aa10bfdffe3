#include "cli/statistics/timeline.h"

#include <algorithm>

#include "base/bits.h"
#include "cli/statistics/report_values.h"
#include "report/chart.h"

namespace farside::cli {
namespace {

constexpr size_t kMaxSamples = 2000;  // a picture has fewer pixels
constexpr double kPressureSeconds = 1;

double mebibytes(double bytes) { return bytes / static_cast<double>(kMiB); }

}  // namespace

void Timeline::add(const std::map<uint64_t, nlohmann::json>& running) {
  add(running, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
}

void Timeline::add(const std::map<uint64_t, nlohmann::json>& running, double seconds) {
  pressure_.add(running);
  if (running.empty() || (!samples_.empty() && seconds - samples_.back().seconds < distance_)) return;
  Sample sample = {seconds, 0, 0, 0, 100 * pressure_.over(kPressureSeconds)};
  for (const auto& [pid, process] : running) {
    double heap = number(process, "heap_bytes"), near = std::min(heap, number(process, "near_bytes"));
    sample.near += mebibytes(near);
    sample.far += mebibytes(heap - near);
    sample.budget += mebibytes(number(process, "local_bytes"));
  }
  samples_.push_back(sample);
  if (samples_.size() < kMaxSamples) return;
  for (size_t i = 0; i < samples_.size() / 2; i++) samples_[i] = samples_[2 * i];
  samples_.resize(samples_.size() / 2);
  distance_ = seconds / static_cast<double>(samples_.size());
}

std::string Timeline::to_svg(const std::string& program) const {
  auto line = [&](const char* name, double Sample::*value) {
    LineChart::Series series = {name, {}};
    for (const Sample& sample : samples_) series.points.emplace_back(sample.seconds, sample.*value);
    return series;
  };
  double end = samples_.empty() ? 1 : samples_.back().seconds;
  // A series without a name takes a colour that is like those before it.
  LineChart memory = {
      "Memory", "seconds",
      "MiB",    end,
      1,        {line("near", &Sample::near), line("far", &Sample::far), {"", {}}, line("budget", &Sample::budget)}};
  LineChart pressure = {
      "Pressure: time lost to far memory in the last second", "seconds", "%", end, 1, {line("", &Sample::pressure)}};
  for (LineChart* chart : {&memory, &pressure}) chart->y_max = top_of(chart->series);
  return farside::to_svg({memory, pressure}, program);
}

}  // namespace farside::cli
