#include "server/regions/region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/bits.h"
#include "base/os.h"

namespace farside::server {
namespace {

constexpr uint32_t kPatched = 3;  // ranges in one page, from which on it is cheaper to read and write the whole page

// The run of adjacent ranges that starts at index *next. Afterwards *next is the index after it.
wire::ByteRange take_run(const wire::RangeList& ranges, uint32_t* next) {
  wire::ByteRange run = ranges[(*next)++];
  for (; *next < ranges.size() && ranges[*next].offset == run.offset + run.bytes; ++*next)
    run.bytes += ranges[*next].bytes;
  return run;
}

// Calls visit(range) for what is left of the list, which returns how many bytes of the range it has done, or -errno.
template <typename Visit>
int proceed(const wire::RangeList& ranges, Progress* progress, Visit visit) {
  while (!progress->is_over(ranges)) {
    wire::ByteRange range = progress->rest(ranges);
    int64_t done = visit(range);
    if (done < 0) return static_cast<int>(done);
    progress->pass(ranges, static_cast<uint64_t>(done));
    if (static_cast<uint64_t>(done) < range.bytes) return kMore;
  }
  return 0;
}

// The index of the first range, from `first` on, that is not within the same page as the ones before it.
uint32_t end_of_page(const wire::RangeList& ranges, uint32_t first) {
  uint64_t page = align_down(ranges[first].offset, kPageSize);
  uint32_t end = first;
  auto within = [&](const wire::ByteRange& e) { return e.offset >= page && e.offset + e.bytes <= page + kPageSize; };
  while (end < ranges.size() && within(ranges[end])) end++;
  return end;
}

}  // namespace

Region::Region(Name name, uint64_t bytes, MemoryFile memory, std::shared_ptr<Family> family)
    : name_(name), bytes_(bytes), family_(std::move(family)), account_(&family_->account), memory_(std::move(memory)) {
  charge_overhead();
}

Region::Region(Name name, MemoryFile memory, std::unique_ptr<PageBitmap> own, Region* base)
    : name_(name),
      bytes_(base->bytes_),
      family_(base->family_),
      account_(base->account_),
      memory_(std::move(memory)),
      own_(std::move(own)),
      base_(base),
      reserved_(base->reserved_.load()) {
  base->overlays_.emplace(name_.id, this);
  base->memory_.set_live_overlays(base->overlays_.size());
  charge_overhead();
}

Region::~Region() {
  account_->correct_overhead(overhead_, 0);
  bool small = memory_.stored_bytes() <= family_->visits.limit * kPageSize;
  if (small) account_->correct(charged_, 0);
  else family_->disposal->add(std::move(memory_), family_, account_, charged_);
}

int Region::read(const wire::RangeList& ranges, std::byte* to, Progress* progress) {
  std::shared_lock hold(family_->lock);
  WorkPiece piece(&family_->visits, &progress->visits);
  if (given_up_) return -EIO;
  return proceed(ranges, progress, [&](const wire::ByteRange& range) -> int64_t {
    std::byte* at = to + progress->moved();
    if (base_) return read_some(range, at, &piece);
    piece.take(1 + range.bytes / kPageSize);
    int r = memory_.read(range.offset, at, range.bytes);
    return r < 0 ? r : static_cast<int64_t>(range.bytes);
  });
}

// A root without overlays writes all at once, which is bounded by what one request may carry.
int Region::write(const wire::RangeList& ranges, const std::byte* from, Progress* progress) {
  provide_memory(progress);
  if (progress->moved() == 0) {
    std::shared_lock hold(family_->lock);
    if (is_plain()) {
      WorkPiece piece(&family_->visits, &progress->visits);
      piece.take(ranges.size());
      if (int r = admit(ranges); r < 0) return wait_for_memory(r, progress);
      int r = write_plain(ranges, from);
      charge_overhead();
      return r;
    }
  }
  std::unique_lock hold(family_->lock);
  WorkPiece piece(&family_->visits, &progress->visits);
  if (given_up_) return -EIO;
  int result = proceed(ranges, progress, [&](const wire::ByteRange& range) {
    return write_some(range, from + progress->moved(), progress, &piece);
  });
  charge_overhead();
  return wait_for_memory(result, progress);
}

int Region::discard(const wire::RangeList& ranges, Progress* progress) {
  provide_memory(progress);
  std::unique_lock hold(family_->lock);
  WorkPiece piece(&family_->visits, &progress->visits);
  if (given_up_) return -EIO;
  int result =
      proceed(ranges, progress, [&](const wire::ByteRange& range) { return discard_some(range, progress, &piece); });
  if (base_) charge_what_is_stored();
  charge_overhead();
  return wait_for_memory(result, progress);
}

// A piece that met a lack of memory is repeated while memory is being freed, which happens before it takes the lock, or
// by the thread that moves pages to the overflow file.
void Region::provide_memory(Progress* progress) {
  constexpr uint64_t kPauseNs = 100'000;
  if (!std::exchange(progress->needs_memory, false) || family_->disposal->free_some()) return;
  if (family_->expects_ram()) os::nanosleep_ns(kPauseNs);
}
int Region::wait_for_memory(int result, Progress* progress) {
  bool lacks_ram = result == -EAGAIN;
  bool waits =
      (lacks_ram && family_->expects_ram()) || ((lacks_ram || result == -ENOMEM) && !family_->disposal->is_empty());
  if (!waits) return lacks_ram ? -ENOMEM : result;
  progress->needs_memory = true;
  return kMore;
}

// The pages that functions write, and holes that they read, are stored without passing admit(), so the bound grows by
// all of them.
int Region::admit_call(wire::Bytes ranges, uint32_t count) {
  if (int r = admit_call_range(0, 0); r < 0) return r;  // also where a call has no ranges
  for (uint32_t i = 0; i < count; i++) {
    wire::CallRange range = wire::call_range(ranges, i);
    for (uint64_t done = 0, part; done < range.bytes; done += part) {
      part = std::min(range.bytes - done, family_->visits.limit * wire::kSlabBytes);
      if (int r = admit_call_range(range.offset + done, part); r < 0) return r;
    }
  }
  return 0;
}

int Region::admit_call_range(uint64_t offset, uint64_t bytes) {
  std::shared_lock hold(family_->lock);
  if (!is_plain()) return -ENOTSUP;
  memory_.note_written(offset, bytes);
  stored_bound_ += bytes;
  charge_overhead();
  return 0;
}

void Region::note_stored_by_calls() {
  {
    std::shared_lock hold(family_->lock);
    uint64_t stored = memory_.stored_bytes(), bound = stored_bound_;
    if (stored_by_calls_.exchange(stored) == stored) return;
    while (bound < stored && !stored_bound_.compare_exchange_weak(bound, stored)) {}
  }
  for (uint64_t at = 0; at < bytes_;) {
    std::shared_lock hold(family_->lock);
    at = memory_.note_data(at, family_->visits.limit);
    charge_overhead();
  }
}

int Region::write_plain(const wire::RangeList& ranges, const std::byte* from) {
  for (uint32_t i = 0; i < ranges.size();) {
    uint32_t end = end_of_page(ranges, i);
    if (end >= i + kPatched) {
      if (int r = patch_page(ranges, &i, end, &from); r < 0) return r;
      continue;
    }
    wire::ByteRange run = take_run(ranges, &i);
    if (int r = memory_.write(run.offset, from, run.bytes); r < 0) return r;
    from += run.bytes;
  }
  return 0;
}

// Writes the ranges *next to end, which are in one page, by rewriting the page. No other write to this page is in
// flight meanwhile (docs/internals/wire.md).
int Region::patch_page(const wire::RangeList& ranges, uint32_t* next, uint32_t end, const std::byte** from) {
  std::byte content[kPageSize];
  uint64_t page = align_down(ranges[*next].offset, kPageSize);
  if (int r = memory_.read(page, content, kPageSize); r < 0) return r;
  for (; *next < end; ++*next) {
    wire::ByteRange e = ranges[*next];
    memcpy(content + (e.offset - page), *from, e.bytes);
    *from += e.bytes;
  }
  return memory_.write(page, content, kPageSize);
}

int Region::share(const ucx::Settings& settings, uint64_t offset, wire::ShareReply* out) {
  if (!settings.is_on()) return -ENOTSUP;
  std::shared_lock hold(family_->lock);
  if (base_) return -EBUSY;
  if (!memory_.slabs().contains(offset)) return -EAGAIN;
  wire::ByteRange slab = {offset, std::min(wire::kSlabBytes, bytes_ - offset)};
  int r = share_.share(settings, memory_.fd(), slab, reserved_ / wire::kSlabBytes, out);
  out->live_overlays = overlays_.size();
  return r;
}

void Region::unshare_empty_slabs(uint64_t offset, uint64_t bytes) {
  if (!share_.is_active()) return;
  for (uint64_t at = align_down(offset, wire::kSlabBytes); at < offset + bytes; at += wire::kSlabBytes) {
    if (!memory_.slabs().contains(at)) share_.unshare(at);
  }
}

void Region::settle() {
  if (given_up_) return;  // its memory is being freed, and charged until then
  charge_what_is_stored();
  bool live_root = !base_ && connections_ > 0;
  if (!live_root || stored_bound_ >= reserved_) return;
  uint64_t due = reserved_;
  account_->correct(charged_.exchange(due), due);
}

void Region::charge_what_is_stored() {
  uint64_t stored = memory_.stored_bytes();
  stored_bound_ = stored;
  account_->correct(charged_.exchange(stored), stored);
  memory_.settle_ram();
}

void Region::charge_overhead() {
  uint64_t due = kOverheadBytes + memory_.overhead_bytes() + (own_ ? own_->memory_bytes() : 0);
  uint64_t before = overhead_.exchange(due);
  if (before != due) account_->correct_overhead(before, due);
}

// Whether a write may use slabs without data. Overhead is charged after it was caused, so a client without room for
// more must keep to as many slabs as it has reserved.
bool Region::may_scatter(const wire::RangeList& ranges) const {
  if (!account_->is_exhausted() || (!base_ && memory_.slabs().count() < reserved_ / wire::kSlabBytes)) return true;
  for (uint32_t i = 0; i < ranges.size(); i++) {
    wire::ByteRange e = ranges[i];
    if (!memory_.slabs().contains(e.offset) || !memory_.slabs().contains(e.offset + e.bytes - 1)) return false;
  }
  return true;
}

// Calls work(offset, bytes) for the runs of pages of the ranges. A page is counted once if the ranges in it follow
// each other in the list.
template <typename Work>
void Region::for_each_page_run(const wire::RangeList& ranges, Work work) {
  uint64_t begin = 0, end = 0;
  for (uint32_t i = 0; i < ranges.size(); i++) {
    wire::ByteRange e = ranges[i];
    uint64_t first = align_down(e.offset, kPageSize), last = align_up(e.offset + e.bytes, kPageSize);
    if (first >= begin && first < end) {
      end = std::max(end, last);
      continue;
    }
    if (end > begin) work(begin, end - begin);
    begin = first;
    end = last;
  }
  if (end > begin) work(begin, end - begin);
}

// Checks that there is memory for the pages of a write. A root was charged for its reservation and must stay within it:
// the upper bound counts every written page as new that is not stored for certain, and is made exact before a write is
// refused. An overlay is charged for each new page, so there the count is exact. -EAGAIN: the memory is admitted, but
// RAM is full and pages have to leave it first.
int Region::admit(const wire::RangeList& ranges) {
  if (!may_scatter(ranges)) return -ENOMEM;
  uint64_t bytes = 0;
  for_each_page_run(ranges, [&](uint64_t at, uint64_t run) { bytes += memory_.is_stored(at, run) ? 0 : run; });
  if (!base_ && bytes == 0) return 0;
  if (!memory_.has_ram_for(bytes)) return -EAGAIN;
  if (!base_ && stored_bound_ + bytes <= reserved_) {
    stored_bound_ += bytes;
    return 0;
  }
  uint64_t missing = 0;
  for_each_page_run(ranges, [&](uint64_t at, uint64_t run) { missing += memory_.missing_bytes(at, run); });
  if (exceeds_reservation(missing)) return -ENOSPC;
  if (base_) return charge_pages(missing) ? 0 : -ENOMEM;
  stored_bound_ += missing;
  return 0;
}

// Makes the upper bound exact. Pages that the packer moves meanwhile may be counted twice, any number of them where
// this thread is interrupted while it counts, so it counts again before it says yes.
bool Region::exceeds_reservation(uint64_t missing) {
  constexpr int kCounts = 4;
  for (int i = 0; i < kCounts; i++) {
    stored_bound_ = memory_.stored_bytes();
    if (missing == 0 || stored_bound_ + missing <= reserved_ + memory_.counted_twice()) return false;
  }
  return true;
}

// Charges pages of an overlay. False: the server is full.
bool Region::charge_pages(uint64_t bytes) {
  if (account_->try_charge(bytes)) return false;
  charged_ += bytes;
  stored_bound_ += bytes;
  return true;
}

}  // namespace farside::server
