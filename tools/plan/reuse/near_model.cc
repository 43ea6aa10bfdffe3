#include "tools/plan/reuse/near_model.h"

#include <algorithm>
#include <bit>

namespace farside::plan {
namespace {

// Of the pager's budget: its minimum, and what its tables use.
constexpr double kMinPages = 2048, kTablePages = 224, kPagesPerTablePage = 512;

}  // namespace

NearModel::NearModel(std::vector<double> shares, size_t max_pages) : sample_(max_pages >> kClusterBits) {
  shares.resize(std::min(shares.size(), kMaxShares));
  for (double fraction : shares) shares_.push_back({.fraction = fraction, .queues = {}, .streams = {}});
  all_ = static_cast<uint32_t>((uint64_t{1} << shares_.size()) - 1);
}

NearModel::Room NearModel::room(const Share& share) const {
  if (share.fraction >= 1) return {SIZE_MAX, SIZE_MAX, SIZE_MAX};
  double rate = sample_.rate(), pages = static_cast<double>(pages_.size());
  double budget = std::max(kMinPages * rate, share.fraction * pages);
  double usable = budget - kTablePages * rate - pages / kPagesPerTablePage;
  double low = std::clamp(usable / 64, std::min(usable / 4, 64 * rate), 4096 * rate);
  auto count = [](double of) { return static_cast<size_t>(std::max(1.0, of)); };
  return {count(budget), count(usable - low), count(usable - 2 * low)};
}

void NearModel::access(uint64_t number, bool write) {
  if (!sample_.place(number >> kClusterBits).sampled) return;
  bool is_new = false;
  Page* page = find_or_add(number, &is_new);
  if (!page) return;
  if (write && !is_new) first_write(*page);
  for (uint32_t absent = all_ & ~page->near; absent != 0; absent &= absent - 1) {
    fetch(static_cast<size_t>(std::countr_zero(absent)), number, *page, write, is_new);
  }
}

// nullptr: adding it exceeded the sample's size, and its own cluster was removed.
NearModel::Page* NearModel::find_or_add(uint64_t number, bool* is_new) {
  auto [entry, added] = pages_.try_emplace(number);
  *is_new = added;
  if (!added) return &entry->second;
  uint64_t cluster = number >> kClusterBits;
  entry->second.group = sample_.place(cluster).group;
  bool known = false;
  for (uint64_t i = 0; i < 1 << kClusterBits && !known; i++) {
    uint64_t neighbour = cluster << kClusterBits | i;
    known = neighbour != number && pages_.contains(neighbour);
  }
  if (known) return &entry->second;
  for (uint64_t left_out : sample_.add(cluster)) remove_cluster(left_out);
  entry = pages_.find(number);
  return entry == pages_.end() ? nullptr : &entry->second;
}

void NearModel::remove_cluster(uint64_t cluster) {
  for (uint64_t i = 0; i < 1 << kClusterBits; i++) {
    auto entry = pages_.find(cluster << kClusterBits | i);
    if (entry == pages_.end()) continue;
    for (size_t s = 0; s < shares_.size(); s++) shares_[s].near -= entry->second.near >> s & 1;
    pages_.erase(entry);
  }
}

void NearModel::first_write(Page& page) {
  uint32_t upgraded = page.near & page.for_reading;
  for (uint32_t left = upgraded; left != 0; left &= left - 1) {
    count(shares_[static_cast<size_t>(std::countr_zero(left))], page, kUpgrade);
  }
  page.rewritten |= upgraded != 0;
  page.for_reading &= ~upgraded;
  page.dirty |= page.near;
}

void NearModel::fetch(size_t share, uint64_t number, Page& page, bool write, bool is_new) {
  Share& s = shares_[share];
  uint32_t bit = uint32_t{1} << share;
  Room room = this->room(s);
  bool streams = s.streams.continues(static_cast<int64_t>(number));
  if (is_new) count(s, page, streams ? kStreamFirstTouch : kFirstTouch);
  else count(s, page, streams ? kStreamFetch : kFetch);
  bool hot = !is_new && s.queues.is_hot((page.main & bit) != 0, s.evictions - page.evicted_at[share], room.budget);
  page.main = s.queues.add(number, hot, is_new) ? page.main | bit : page.main & ~bit;
  bool writable = write || is_new || page.rewritten;
  page.dirty = writable ? page.dirty | bit : page.dirty & ~bit;
  page.for_reading = writable ? page.for_reading & ~bit : page.for_reading | bit;
  page.near |= bit;
  s.near++;
  if (s.near <= room.begin) return;
  while (s.near > room.rest) evict(share);
}

void NearModel::evict(size_t share) {
  Share& s = shares_[share];
  uint32_t bit = uint32_t{1} << share;
  uint64_t number = 0;
  if (!s.queues.take(&number)) return;
  auto entry = pages_.find(number);
  if (entry == pages_.end() || (entry->second.near & bit) == 0) return;
  Page& page = entry->second;
  if ((page.dirty & bit) != 0) count(s, page, kDirtyEviction);
  page.near &= ~bit;
  page.evicted_at[share] = s.evictions++;
  s.near--;
}

NearEvents NearModel::events(size_t share) const {
  NearEvents sum{};
  for (const NearEvents& group : shares_[share].events) {
    for (size_t i = 0; i < sum.size(); i++) sum[i] += group[i];
  }
  return sum;
}

Estimate NearModel::cost(size_t share, const NearEvents& prices) const {
  std::array<double, SpatialSample::kGroups> estimates{};
  double sum = 0;
  for (size_t g = 0; g < estimates.size(); g++) {
    double cost = 0;
    for (size_t i = 0; i < prices.size(); i++) cost += shares_[share].events[g][i] * prices[i];
    estimates[g] = cost * SpatialSample::kGroups;
    sum += cost;
  }
  return {sum, error_of(estimates, sample_.unseen())};
}

}  // namespace farside::plan
