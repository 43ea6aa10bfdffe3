#include "base/exposition.h"

namespace farside {
namespace {

void append_escaped(std::string* text, std::string_view value) {
  for (char c : value) {
    if (c == '\n') {
      *text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') *text += '\\';
    *text += c;
  }
}

}  // namespace

DurationHistogram::Counts DurationHistogram::counts() const {
  Counts counts;
  for (unsigned i = 0; i < kBuckets; i++) counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
  counts.seconds = static_cast<double>(total_ns_.load(std::memory_order_relaxed)) / 1e9;
  return counts;
}

void Exposition::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

void Exposition::sample(const DurationHistogram::Counts& counts, const Labels& labels) {
  uint64_t below = 0;
  for (unsigned i = 0; i < DurationHistogram::kBuckets; i++) {
    below += counts.buckets[i];
    bool last = i + 1 == DurationHistogram::kBuckets;
    std::string bound = last ? "+Inf" : fmt::format("{}", DurationHistogram::bound(i));
    Labels with_bound = labels;
    with_bound.emplace_back("le", bound);
    add_sample("_bucket", with_bound, fmt::format("{}", below));
  }
  add_sample("_sum", labels, fmt::format("{}", counts.seconds));
  add_sample("_count", labels, fmt::format("{}", below));
}

void Exposition::summary(std::string_view name, std::string_view help,
                         const std::vector<std::pair<std::string_view, double>>& quantiles, double sum,
                         uint64_t count) {
  begin(name, "summary", help);
  for (const auto& [quantile, value] : quantiles) sample(value, {{"quantile", quantile}});
  add_sample("_sum", {}, fmt::format("{}", sum));
  add_sample("_count", {}, fmt::format("{}", count));
}

void Exposition::add_sample(std::string_view suffix, const Labels& labels, std::string_view value) {
  Labels all(constant_.begin(), constant_.end());
  all.insert(all.end(), labels.begin(), labels.end());
  text_ += name_;
  text_ += suffix;
  for (size_t i = 0; i < all.size(); i++) {
    text_ += i == 0 ? '{' : ',';
    text_ += all[i].first;
    text_ += "=\"";
    append_escaped(&text_, all[i].second);
    text_ += '"';
  }
  if (!all.empty()) text_ += '}';
  text_ += ' ';
  text_ += value;
  text_ += '\n';
}

}  // namespace farside
