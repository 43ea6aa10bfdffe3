#include "tools/plan/reuse/stack_distance.h"

#include <algorithm>
#include <vector>

namespace farside::plan {

uint64_t StackDistance::access(uint64_t key) {
  if (now_ == marks_.length()) renumber();
  auto [entry, is_new] = last_.try_emplace(key, now_);
  uint64_t distance = kFirst;
  if (!is_new) {
    distance = last_.size() - marks_.sum(entry->second);
    marks_.add(entry->second, -1);
    entry->second = now_;
  }
  marks_.add(now_++, 1);
  return distance;
}

void StackDistance::forget(uint64_t key) {
  auto entry = last_.find(key);
  if (entry == last_.end()) return;
  marks_.add(entry->second, -1);
  last_.erase(entry);
}

void StackDistance::renumber() {
  constexpr size_t kMinTimes = 1024, kTimesPerKey = 4;
  std::vector<std::pair<uint32_t, uint64_t>> in_order;
  in_order.reserve(last_.size());
  for (auto [key, time] : last_) in_order.emplace_back(time, key);
  std::ranges::sort(in_order);
  now_ = 0;
  for (auto [time, key] : in_order) last_[key] = now_++;
  marks_ = Fenwick(std::max(kMinTimes, kTimesPerKey * last_.size()), now_);
}

}  // namespace farside::plan
