// Metrics as text in Prometheus' exposition format. Ordinary code.
#pragma once
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farside {

// Counts durations in buckets, each four times the one before: 1 us to 4 s, and above. Thread-safe.
class DurationHistogram {
 public:
  static constexpr unsigned kBuckets = 13;
  struct Counts {
    std::array<uint64_t, kBuckets> buckets{};
    double seconds = 0;
  };

  void add(uint64_t ns) {
    uint64_t us = ns / 1000;
    unsigned bucket = us == 0 ? 0 : static_cast<unsigned>(std::bit_width(us) + 1) / 2;
    buckets_[bucket < kBuckets ? bucket : kBuckets - 1].fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
  }
  // The bound of a bucket but the last, in seconds.
  static double bound(unsigned bucket) { return 1e-6 * static_cast<double>(uint64_t{1} << (2 * bucket)); }
  Counts counts() const;

 private:
  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> total_ns_{0};
};

class Exposition {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;

  // `constant` labels are added to every sample.
  explicit Exposition(std::vector<std::pair<std::string, std::string>> constant = {})
      : constant_(std::move(constant)) {}

  // Begins a metric; its samples follow.
  void begin(std::string_view name, std::string_view type, std::string_view help);
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number>
  void sample(Number value, const Labels& labels = {}) { add_sample("", labels, fmt::format("{}", value)); }
  void sample(const DurationHistogram::Counts& counts, const Labels& labels);

  // A metric of quantiles, by their names ("0.99"), and of what they are the quantiles of.
  void summary(std::string_view name, std::string_view help,
               const std::vector<std::pair<std::string_view, double>>& quantiles, double sum, uint64_t count);

  // A metric with one sample.
  template <typename Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    begin(name, "gauge", help);
    sample(value);
  }
  template <typename Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    begin(name, "counter", help);
    sample(value);
  }

  std::string take() { return std::move(text_); }

 private:
  void add_sample(std::string_view suffix, const Labels& labels, std::string_view value);

  const std::vector<std::pair<std::string, std::string>> constant_;
  std::string name_, text_;
};

}  // namespace farside
