#include "cli/statistics/pressure.h"

#include <algorithm>

#include "cli/statistics/run_advice.h"

namespace farside::cli {
namespace {

constexpr double kLongest = *std::ranges::max_element(Pressure::kWindows);

}  // namespace

void Pressure::add(const std::map<uint64_t, nlohmann::json>& running) {
  std::erase_if(samples_, [&](const auto& process) { return !running.contains(process.first); });
  for (const auto& [pid, report] : running) {
    Loss loss = refault_loss_of(report);
    std::deque<Sample>& samples = samples_[pid];
    if (!samples.empty() && loss.run_seconds < samples.back().seconds) samples.clear();  // another process
    if (samples.empty() || loss.run_seconds > samples.back().seconds)
      samples.push_back({loss.run_seconds, loss.seconds});
    while (samples.size() > 1 && samples[1].seconds <= samples.back().seconds - kLongest) samples.pop_front();
  }
}

double Pressure::over(double seconds) const {
  double most = 0;
  for (const auto& [pid, samples] : samples_) {
    const Sample& now = samples.back();
    auto is_before = [&](const Sample& sample) { return sample.seconds <= now.seconds - seconds; };
    auto found = std::find_if(samples.rbegin(), samples.rend(), is_before);
    Sample before = found == samples.rend() ? Sample{} : *found;
    double passed = now.seconds - before.seconds;
    if (passed > 0) most = std::max(most, std::clamp((now.lost - before.lost) / passed, 0.0, 1.0));
  }
  return most;
}

}  // namespace farside::cli
