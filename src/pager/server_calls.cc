#include "pager/server_calls.h"

#include <algorithm>
#include <cerrno>

namespace farside::pager {
namespace {

bool is_written(std::span<const CallRange> ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [](const CallRange& range) { return range.written; });
}

}  // namespace

PageIndex ServerCalls::first_of(const CallRange& range) const { return table_.index_of(number(range.address)); }

CallShare ServerCalls::share_of(std::span<const CallRange> ranges) {
  constexpr uint64_t kMaxSeen = 64;
  CallShare share;
  for (const CallRange& range : ranges) {
    PageIndex first = first_of(range);
    uint64_t count = range.bytes / kPageSize, seen = std::min(count, kMaxSeen), far = 0, dirty = 0;
    for (uint64_t i = 0; i < seen; i++) {
      PageWord word = table_[first + static_cast<PageIndex>(i * count / seen)].load();
      far += word.is(PageState::kFar);
      dirty += word.is(PageState::kNear) && word.has(PageWord::kDirty);
    }
    share.pages += count;
    share.far += far * count / seen;
    share.dirty += dirty * count / seen;
  }
  return share;
}

int ServerCalls::begin(std::span<const CallRange> ranges) {
  bool all_far =
      std::all_of(ranges.begin(), ranges.end(), [&](const CallRange& r) { return table_.in_space(number(r.address)); });
  if (!all_far) return -EFAULT;
  if (is_written(ranges)) written_mutex_.lock();
  RangeOps::WriteBack read(ranges_);
  for (size_t i = 0; i < ranges.size(); i++) {
    PageIndex first = first_of(ranges[i]);
    uint64_t count = ranges[i].bytes / kPageSize;
    if (ranges[i].written) read.finish();
    if (ranges[i].written ? take(first, count) : read.add(first, count)) continue;
    take_back(ranges.first(i));
    if (is_written(ranges)) written_mutex_.unlock();
    return -EFAULT;
  }
  return 0;
}

// All of the pages or none.
bool ServerCalls::take(PageIndex first, uint64_t count) {
  uint64_t taken = ranges_.take(first, count);
  if (taken == count) return true;
  ranges_.give_back(first, taken);
  return false;
}

void ServerCalls::end(std::span<const CallRange> ranges) {
  take_back(ranges);
  if (is_written(ranges)) written_mutex_.unlock();
}

void ServerCalls::take_back(std::span<const CallRange> ranges) {
  for (const CallRange& range : ranges) {
    if (range.written) ranges_.give_back(first_of(range), range.bytes / kPageSize);
  }
}

}  // namespace farside::pager
