#include "server/region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "base/bits.h"

namespace farside::server {
namespace {

constexpr uint32_t kPatched = 3;  // extents in one page, from which on it is cheaper to read and write the whole page

bool all_zero(const std::byte* page) { return page[0] == std::byte{0} && memcmp(page, page + 1, kPageSize - 1) == 0; }

// The run of adjacent extents that starts at index *next. Afterwards *next is the index after it.
wire::Extent take_run(const wire::ExtentList& extents, uint32_t* next) {
  wire::Extent run = extents[(*next)++];
  for (; *next < extents.size() && extents[*next].offset == run.offset + run.bytes; ++*next)
    run.bytes += extents[*next].bytes;
  return run;
}

// Calls visit(offset, bytes) for each run of adjacent extents, until a call fails. 0 or that error.
template <typename Visit>
int for_each_run(const wire::ExtentList& extents, Visit visit) {
  for (uint32_t i = 0; i < extents.size();) {
    wire::Extent run = take_run(extents, &i);
    if (int r = visit(run.offset, run.bytes); r < 0) return r;
  }
  return 0;
}

// The index of the first extent, from `first` on, that is not within the same page as the ones before it.
uint32_t end_of_page(const wire::ExtentList& extents, uint32_t first) {
  uint64_t page = align_down(extents[first].offset, kPageSize);
  uint32_t end = first;
  auto within = [&](const wire::Extent& e) { return e.offset >= page && e.offset + e.bytes <= page + kPageSize; };
  while (end < extents.size() && within(extents[end])) end++;
  return end;
}

}  // namespace

Region::Region(Name name, uint64_t bytes, MemoryFile memory, uint64_t quota, Account* server)
    : name_(name),
      bytes_(bytes),
      family_(std::make_shared<Family>(quota, server)),
      account_(&family_->account),
      memory_(std::move(memory)) {
  charge_overhead();
}

Region::Region(Name name, MemoryFile memory, Region* base)
    : name_(name),
      bytes_(base->bytes_),
      family_(base->family_),
      account_(base->account_),
      memory_(std::move(memory)),
      own_(std::make_unique<PageBitmap>(base->bytes_ / kPageSize)),
      base_(base),
      reserved_(base->reserved_.load()) {
  base->overlays_.push_back(this);
  base->memory_.set_live_overlays(base->overlays_.size());
  charge_overhead();
}

Region::~Region() {
  account_->correct(charged_, 0);
  account_->correct_overhead(overhead_, 0);
}

int Region::read(const wire::ExtentList& extents, std::byte* to) {
  std::shared_lock hold(family_->lock);
  if (given_up_) return -EIO;
  return for_each_run(extents, [&](uint64_t offset, uint64_t bytes) {
    int r = base_ ? read_run(offset, bytes, to) : memory_.read(offset, to, bytes);
    to += bytes;
    return r;
  });
}

int Region::write(const wire::ExtentList& extents, const std::byte* from) {
  {
    std::shared_lock hold(family_->lock);
    if (is_plain()) {
      if (int r = admit(extents); r < 0) return r;
      int r = write_plain(extents, from);
      charge_overhead();
      return r;
    }
  }
  std::unique_lock hold(family_->lock);
  if (given_up_) return -EIO;
  if (int r = admit(extents); r < 0) return r;
  int result = for_each_run(extents, [&](uint64_t offset, uint64_t bytes) {
    int r = write_run(offset, bytes, from);
    from += bytes;
    return r;
  });
  charge_overhead();
  return result;
}

// The pages that functions write, and holes that they read, are stored without passing admit(), so the bound grows by
// all of them.
int Region::admit_call(wire::Bytes ranges, uint32_t count) {
  std::shared_lock hold(family_->lock);
  if (!is_plain()) return -ENOTSUP;
  for (uint32_t i = 0; i < count; i++) {
    wire::CallRange range = wire::call_range(ranges, i);
    memory_.note_written(range.offset, range.bytes);
    stored_bound_ += range.bytes;
  }
  charge_overhead();
  return 0;
}

void Region::note_stored_by_calls() {
  std::shared_lock hold(family_->lock);
  uint64_t stored = memory_.stored_bytes();
  if (stored_by_calls_.exchange(stored) == stored) return;
  uint64_t bound = stored_bound_;
  while (bound < stored && !stored_bound_.compare_exchange_weak(bound, stored)) {}
  memory_.note_data();
  charge_overhead();
}

int Region::write_plain(const wire::ExtentList& extents, const std::byte* from) {
  for (uint32_t i = 0; i < extents.size();) {
    uint32_t end = end_of_page(extents, i);
    if (end >= i + kPatched) {
      if (int r = patch_page(extents, &i, end, &from); r < 0) return r;
      continue;
    }
    wire::Extent run = take_run(extents, &i);
    if (int r = memory_.write(run.offset, from, run.bytes); r < 0) return r;
    from += run.bytes;
  }
  return 0;
}

// Writes the extents *next to end, which are in one page, by rewriting the page. No other write to this page is in
// flight meanwhile (docs/internals/wire.md).
int Region::patch_page(const wire::ExtentList& extents, uint32_t* next, uint32_t end, const std::byte** from) {
  std::byte content[kPageSize];
  uint64_t page = align_down(extents[*next].offset, kPageSize);
  if (int r = memory_.read(page, content, kPageSize); r < 0) return r;
  for (; *next < end; ++*next) {
    wire::Extent e = extents[*next];
    memcpy(content + (e.offset - page), *from, e.bytes);
    *from += e.bytes;
  }
  return memory_.write(page, content, kPageSize);
}

int Region::discard(const wire::ExtentList& extents) {
  std::unique_lock hold(family_->lock);
  if (given_up_) return -EIO;
  bool plain = is_plain();
  int r =
      for_each_run(extents, [&](uint64_t o, uint64_t n) { return plain ? memory_.punch(o, n) : discard_run(o, n); });
  unshare_empty_slabs(extents);
  charge_overhead();
  return r;
}

int Region::share(const ucx::Settings& settings, uint64_t offset, wire::ShareReply* out) {
  if (!settings.is_on()) return -ENOTSUP;
  std::shared_lock hold(family_->lock);
  if (base_) return -EBUSY;
  if (!memory_.slabs().contains(offset)) return -EAGAIN;
  wire::Extent slab = {offset, std::min(wire::kSlabBytes, bytes_ - offset)};
  int r = share_.share(settings, memory_.fd(), slab, reserved_ / wire::kSlabBytes, out);
  out->live_overlays = overlays_.size();
  return r;
}

void Region::unshare_empty_slabs(const wire::ExtentList& extents) {
  if (!share_.is_active()) return;
  for_each_run(extents, [&](uint64_t offset, uint64_t bytes) {
    for (uint64_t at = align_down(offset, wire::kSlabBytes); at < offset + bytes; at += wire::kSlabBytes) {
      if (!memory_.slabs().contains(at)) share_.unshare(at);
    }
    return 0;
  });
}

void Region::settle() {
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
}

void Region::charge_overhead() {
  uint64_t due = kOverheadBytes + memory_.overhead_bytes() + (own_ ? own_->memory_bytes() : 0);
  uint64_t before = overhead_.exchange(due);
  if (before != due) account_->correct_overhead(before, due);
}

// Whether a write may use slabs without data. Overhead is charged after it was caused, so a client without room for
// more must keep to as many slabs as it has reserved.
bool Region::may_scatter(const wire::ExtentList& extents) const {
  if (!account_->is_exhausted() || (!base_ && memory_.slabs().count() < reserved_ / wire::kSlabBytes)) return true;
  for (uint32_t i = 0; i < extents.size(); i++) {
    wire::Extent e = extents[i];
    if (!memory_.slabs().contains(e.offset) || !memory_.slabs().contains(e.offset + e.bytes - 1)) return false;
  }
  return true;
}

// Calls work(offset, bytes) for the runs of pages of the extents. A page is counted once if the extents in it follow
// each other in the list.
template <typename Work>
void Region::for_each_page_run(const wire::ExtentList& extents, Work work) {
  uint64_t begin = 0, end = 0;
  for (uint32_t i = 0; i < extents.size(); i++) {
    wire::Extent e = extents[i];
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
// refused. An overlay is charged for each new page, so there the count is exact.
int Region::admit(const wire::ExtentList& extents) {
  if (!may_scatter(extents)) return -ENOMEM;
  uint64_t bytes = 0;
  for_each_page_run(extents, [&](uint64_t at, uint64_t run) { bytes += memory_.is_stored(at, run) ? 0 : run; });
  if (!base_ && bytes == 0) return 0;
  if (!base_ && stored_bound_ + bytes <= reserved_) {
    stored_bound_ += bytes;
    return 0;
  }
  uint64_t missing = 0;
  for_each_page_run(extents, [&](uint64_t at, uint64_t run) { missing += memory_.missing_bytes(at, run); });
  stored_bound_ = memory_.stored_bytes();
  if (stored_bound_ + missing > reserved_) return -ENOSPC;
  if (base_) return charge_pages(missing) ? 0 : -ENOMEM;
  stored_bound_ += missing;
  return 0;
}

// Charges pages of an overlay. False: the server is full.
bool Region::charge_pages(uint64_t bytes) {
  if (account_->try_charge(bytes)) return false;
  charged_ += bytes;
  stored_bound_ += bytes;
  return true;
}

const Region* Region::owner_of(uint64_t page) const {
  const Region* region = this;
  while (!region->owns(page)) region = region->base_;
  return region;
}

int Region::read_run(uint64_t offset, uint64_t bytes, std::byte* to) const {
  for (uint64_t end = offset + bytes; offset < end;) {
    const Region* owner = owner_of(offset / kPageSize);
    uint64_t next = align_down(offset, kPageSize) + kPageSize;
    while (next < end && owner_of(next / kPageSize) == owner) next += kPageSize;
    uint64_t step = std::min(next, end) - offset;
    if (int r = owner->memory_.read(offset, to, step); r < 0) return r;
    offset += step;
    to += step;
  }
  return 0;
}

int Region::read_page(uint64_t page, std::byte* to) const {
  return owner_of(page)->memory_.read(page * kPageSize, to, kPageSize);
}

int Region::write_run(uint64_t offset, uint64_t bytes, const std::byte* from) {
  for (uint64_t end = offset + bytes; offset < end;) {
    uint64_t page = offset / kPageSize;
    uint64_t step = std::min((page + 1) * kPageSize, end) - offset;
    save_for_overlays(page);
    if (!owns(page) && step < kPageSize) {
      if (int r = copy_up(page); r < 0) return r;
    }
    if (int r = memory_.write(offset, from, step); r < 0) return r;
    if (own_) own_->set(page);
    offset += step;
    from += step;
  }
  return 0;
}

// Visits only pages with data, since holes are zero already.
int Region::discard_run(uint64_t offset, uint64_t bytes) {
  uint64_t end = offset + bytes;
  for (uint64_t at = next_data(align_down(offset, kPageSize)); at < end; at = next_data(at + kPageSize)) {
    at = align_down(at, kPageSize);
    uint64_t page = at / kPageSize;
    save_for_overlays(page);
    if (owns(page)) continue;
    bool whole = offset <= at && at + kPageSize <= end;
    if (whole) own_->set(page);
    else if (!charge_pages(kPageSize)) return -ENOMEM;
    else if (int r = copy_up(page); r < 0) return r;
  }
  if (int r = memory_.punch(offset, bytes); r < 0) return r;
  if (base_) charge_what_is_stored();
  return 0;
}

// The first offset from `offset` on at which a read of this region may return data other than zeros.
uint64_t Region::next_data(uint64_t offset) const {
  uint64_t first = bytes_;
  for (const Region* region = this; region; region = region->base_) {
    first = std::min(first, region->memory_.next_data(offset));
  }
  return first;
}

int Region::copy_up(uint64_t page) {
  std::byte content[kPageSize];
  if (int r = read_page(page, content); r < 0) return r;
  return keep_page(page, content);
}

// Makes this overlay the owner of a page with this content. Zeros are not stored.
int Region::keep_page(uint64_t page, const std::byte* content) {
  if (!all_zero(content)) {
    if (int r = memory_.write(page * kPageSize, content, kPageSize); r < 0) return r;
  }
  own_->set(page);
  return 0;
}

// Called before a page of this region changes. An overlay for which there is no memory is given up: its process
// receives -EIO at its next request, while the process of this region continues.
void Region::save_for_overlays(uint64_t page) {
  bool wanted =
      std::any_of(overlays_.begin(), overlays_.end(), [page](Region* o) { return !o->given_up_ && !o->owns(page); });
  if (!wanted) return;
  std::byte content[kPageSize];
  bool readable = read_page(page, content) == 0;
  bool zero = readable && all_zero(content);
  for (Region* overlay : overlays_) {
    if (overlay->given_up_ || overlay->owns(page)) continue;
    bool kept = readable && overlay->has_room_to_save(page, zero) && overlay->keep_page(page, content) == 0;
    if (kept) overlay->charge_overhead();
    else overlay->give_up();
  }
}

bool Region::has_room_to_save(uint64_t page, bool zero) {
  if (account_->is_exhausted() && (!own_->has_part_of(page) || !memory_.slabs().contains(page * kPageSize)))
    return false;
  return zero || charge_pages(kPageSize);
}

void Region::give_up() {
  given_up_ = true;
  memory_.punch(0, bytes_);
  account_->correct(charged_.exchange(0), 0);
  stored_bound_ = 0;
  if (own_) own_->clear();
  charge_overhead();
  for (Region* overlay : overlays_) overlay->give_up();
}

void Region::detach_from_base() {
  if (!base_) return;
  std::erase(base_->overlays_, this);
  base_->memory_.set_live_overlays(base_->overlays_.size());
  base_ = nullptr;
}

// The base has no connection and no other overlay: this overlay writes its own pages into the base's memory and takes
// its place in the tree. So chains are not longer than the number of live processes, and no page is stored twice.
void Region::replace_base() {
  Region* base = base_;
  bool intact = !given_up_;
  std::byte content[kPageSize];
  own_->for_each([&](uint64_t page) {
    uint64_t offset = page * kPageSize;
    bool hole = memory_.next_data(offset) >= offset + kPageSize;
    if (hole) intact = intact && base->memory_.punch(offset, kPageSize) == 0;
    else
      intact = intact && memory_.read(offset, content, kPageSize) == 0 &&
               base->memory_.write(offset, content, kPageSize) == 0;
    if (base->own_) base->own_->set(page);
  });
  memory_ = std::move(base->memory_);
  own_ = std::move(base->own_);
  given_up_ = !intact;
  base_ = base->base_;
  if (base_) std::replace(base_->overlays_.begin(), base_->overlays_.end(), base, this);
  base->base_ = nullptr;
  base->overlays_.clear();
  memory_.set_live_overlays(overlays_.size());
  settle();
  charge_overhead();
}

}  // namespace farside::server
