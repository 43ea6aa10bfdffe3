// What regions do as parts of a tree: reading through bases, saving pages for overlays, taking the place of a base.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bits.h"
#include "server/regions/region.h"

namespace farside::server {
// The regions between this one and the owner do not have the pages.
int Region::find_owner(uint64_t page, WorkPiece* piece, Owner* owner) const {
  owner->pages = bytes_;
  for (owner->region = this;; owner->region = owner->region->base_) {
    if (!piece->visit()) return kMore;
    if (owner->region->given_up_) return -EIO;
    auto [owned, pages] = owner->region->owned_run(page);
    owner->pages = std::min(owner->pages, pages);
    if (owned) return 0;
  }
}

unsigned Region::chain_length() const {
  unsigned length = 0;
  for (const Region* region = this; region; region = region->base_) length++;
  return length;
}

int64_t Region::read_some(const wire::ByteRange& range, std::byte* to, WorkPiece* piece) const {
  uint64_t at = range.offset, end = at + range.bytes;
  while (at < end) {
    Owner owner;
    int r = find_owner(at / kPageSize, piece, &owner);
    if (r == kMore) break;
    uint64_t step = std::min(align_down(at, kPageSize) + owner.pages * kPageSize, end) - at;
    if (r == 0) r = owner.region->memory_.read(at, to, step);
    if (r < 0) return r;
    at += step;
    to += step;
  }
  return static_cast<int64_t>(at - range.offset);
}

int Region::load(uint64_t page, WorkPiece* piece, Content* content) const {
  if (content->is_loaded) return content->error;
  Owner owner;
  int r = find_owner(page, piece, &owner);
  if (r == kMore) return r;
  if (r == 0) r = owner.region->memory_.read(page * kPageSize, content->bytes, kPageSize);
  content->is_loaded = true;
  content->is_zero = r == 0 && is_zero_page(content->bytes);
  return content->error = r;
}

int64_t Region::write_some(const wire::ByteRange& range, const std::byte* from, Progress* progress, WorkPiece* piece) {
  uint64_t at = range.offset, end = at + range.bytes;
  while (at < end && piece->visit()) {
    uint64_t page_end = align_down(at, kPageSize) + kPageSize;
    wire::ByteRange part = {at, std::min(page_end, end) - at};
    int r = write_part(part, from, progress, piece);
    if (r == kMore) break;
    if (r < 0) return r;
    at += part.bytes;
    from += part.bytes;
    progress->saved_up_to = 0;
  }
  return static_cast<int64_t>(at - range.offset);
}

// Writes within one page.
int Region::write_part(const wire::ByteRange& part, const std::byte* from, Progress* progress, WorkPiece* piece) {
  uint64_t page = part.offset / kPageSize;
  Content content;
  if (int r = save_for_overlays(page, &content, progress, piece); r != 0) return r;
  bool copies_up = !owns(page) && part.bytes < kPageSize;
  if (copies_up) {
    if (int r = load(page, piece, &content); r != 0) return r;
  }
  if (int r = admit({reinterpret_cast<const std::byte*>(&part), 1}); r < 0) return r;
  if (copies_up) memcpy(content.bytes + part.offset % kPageSize, from, part.bytes);
  int r = copies_up ? memory_.write(page * kPageSize, content.bytes, kPageSize)
                    : memory_.write(part.offset, from, part.bytes);
  if (r == 0 && own_) own_->set(page);
  return r;
}

// Discards what is not zero already: single pages where their content is needed, else runs of pages.
int64_t Region::discard_some(const wire::ByteRange& range, Progress* progress, WorkPiece* piece) {
  uint64_t at = range.offset, end = at + range.bytes;
  NextData next;
  while (at < end && piece->visit()) {
    auto [owned, pages] = owned_run(at / kPageSize);
    uint64_t stop = std::min(align_down(at, kPageSize) + pages * kPageSize, end);
    if (!find_data(at, owned, *progress, piece, &next)) break;
    uint64_t data = align_down(owned ? next.own : next.of_base, kPageSize);
    if (data >= stop) {
      at = stop;
      continue;
    }
    at = std::max(at, data);
    uint64_t page_end = align_down(at, kPageSize) + kPageSize;
    bool single = !overlays_.empty() || at % kPageSize != 0 || page_end > stop;
    if (single) progress->has_data_at = at;
    uint64_t taken = piece->take(single ? 1 : (stop - at) / kPageSize);
    if (taken == 0) break;
    stop = single ? std::min(page_end, stop) : at + taken * kPageSize;
    int r = single ? discard_part({at, stop - at}, progress, piece) : discard_run({at, stop - at}, owned);
    if (r == kMore) break;
    if (r < 0) return r;
    at = stop;
    progress->saved_up_to = 0;
  }
  return static_cast<int64_t>(at - range.offset);
}

// Where there may be data from `at` on: in this region's own file, or in the bases. False: the piece is over. Where an
// earlier piece found data is not searched again: that could take all of each piece.
bool Region::find_data(uint64_t at, bool owned, const Progress& progress, WorkPiece* piece, NextData* next) const {
  uint64_t* data = owned ? &next->own : &next->of_base;
  if (*data != NextData::kUnknown && *data >= at) return true;
  if (owned) *data = is_plain() ? memory_.next_used(at) : memory_.next_data(at);
  else *data = progress.has_data_at == at ? at : base_->next_data_of_chain(at, piece);
  return *data != NextData::kUnknown;
}

uint64_t Region::next_data_of_chain(uint64_t offset, WorkPiece* piece) const {
  uint64_t first = bytes_;
  for (const Region* region = this; region && first > offset; region = region->base_) {
    if (!piece->visit()) return NextData::kUnknown;
    first = std::min(first, region->given_up_ ? offset : region->memory_.next_data(offset));
  }
  return first;
}

// Pages of which nothing is needed: whole ones, of a region without overlays.
int Region::discard_run(const wire::ByteRange& range, bool owned) {
  for (uint64_t at = range.offset; !owned && at < range.offset + range.bytes; at += kPageSize)
    own_->set(at / kPageSize);
  return punch(range);
}

// Within one page.
int Region::discard_part(const wire::ByteRange& part, Progress* progress, WorkPiece* piece) {
  uint64_t page = part.offset / kPageSize;
  bool whole = part.bytes == kPageSize;
  Content content;
  int r = load(page, piece, &content);
  if (r == kMore || (r < 0 && !whole)) return r;
  if (content.is_zero) return 0;
  if (int s = save_for_overlays(page, &content, progress, piece); s != 0) return s;
  if (owns(page)) return punch(part);
  memset(content.bytes + part.offset % kPageSize, 0, part.bytes);
  content.is_zero = whole || is_zero_page(content.bytes);
  if (!content.is_zero && !memory_.has_ram_for(kPageSize)) return -EAGAIN;
  if (!content.is_zero && !charge_pages(kPageSize)) return -ENOMEM;
  return keep_page(page, content);
}

int Region::punch(const wire::ByteRange& range) {
  int r = memory_.punch(range.offset, range.bytes);
  unshare_empty_slabs(range.offset, range.bytes);
  return r;
}

// Makes this overlay the owner of a page with this content. Zeros are not stored.
int Region::keep_page(uint64_t page, const Content& content) {
  if (!content.is_zero) {
    if (int r = memory_.write(page * kPageSize, content.bytes, kPageSize); r < 0) return r;
  }
  own_->set(page);
  return 0;
}

// Called before a page of this region changes. Overlays that are made while it takes several pieces have larger
// identifiers than those before; one that takes the place of its base owns what the base owned.
int Region::save_for_overlays(uint64_t page, Content* content, Progress* progress, WorkPiece* piece) {
  for (auto next = overlays_.upper_bound(progress->saved_up_to); next != overlays_.end(); ++next) {
    if (!piece->visit()) return kMore;
    Region* overlay = next->second;
    if (!overlay->given_up_ && !overlay->owns(page)) {
      if (load(page, piece, content) == kMore) return kMore;
      if (!overlay->save(page, *content)) {
        progress->needs_memory = true;
        return kMore;
      }
    }
    progress->saved_up_to = next->first;
  }
  return 0;
}

// An overlay for which there is no memory is given up: its process receives -EIO at its next request, while the process
// of its base continues. False: there will be some soon.
bool Region::save(uint64_t page, const Content& content) {
  bool has_ram = content.is_zero || memory_.has_ram_for(kPageSize);
  if (!has_ram && content.error == 0 && family_->expects_ram()) return false;
  bool has_room = has_ram && content.error == 0 && has_room_to_save(page, content.is_zero);
  if (!has_room && content.error == 0 && !family_->disposal->is_empty()) return false;
  if (has_room && keep_page(page, content) == 0) charge_overhead();
  else give_up();
  return true;
}

bool Region::has_room_to_save(uint64_t page, bool zero) {
  if (account_->is_exhausted() && (!own_->has_part_of(page) || !memory_.slabs().contains(page * kPageSize)))
    return false;
  return zero || charge_pages(kPageSize);
}

// Its own overlays find out when they need a page of it.
void Region::give_up() {
  given_up_ = true;
  own_->clear();
  free_given_up(&charged_);
  charge_overhead();
}

// The file itself stays, empty; without another descriptor it stays as it is.
void Region::free_given_up(std::atomic<uint64_t>* charged) {
  MemoryFile freed = memory_.duplicate();
  if (freed.fd() >= 0) family_->disposal->add(std::move(freed), family_, account_, charged->exchange(0));
}

void Region::detach_from_base() {
  if (!base_) return;
  base_->overlays_.erase(name_.id);
  base_->memory_.set_live_overlays(base_->overlays_.size());
  base_ = nullptr;
}

// The base has no connection and no other overlay: this overlay moves its own pages into the base's file, and then
// takes its place in the tree (replace_base). So chains are not longer than the number of live processes. Each page is
// found in one of the two files, whether it was moved or not. 0: this overlay owns none any more.
int Region::merge_into_base(WorkPiece* piece) {
  if (base_->given_up_ && !given_up_) give_up();
  uint64_t first = merged_up_to_;
  int r = 0;
  while (r == 0 && own_->count() > 0) {
    uint64_t page = own_->next(merged_up_to_);
    if (page == PageBitmap::kNone) {  // the rest was written meanwhile
      punch_moved(first);
      first = merged_up_to_ = 0;
      continue;
    }
    r = piece->take(2) < 2 ? kMore : move_to_base(page);
    if (r == 0) merged_up_to_ = page + 1;
  }
  punch_moved(first);
  base_->charge_what_is_stored();
  base_->charge_overhead();
  charge_what_is_stored();
  charge_overhead();
  return r;
}

int Region::move_to_base(uint64_t page) {
  std::byte content[kPageSize];
  uint64_t offset = page * kPageSize;
  int r = memory_.read(offset, content, kPageSize);
  if (r < 0) return r;
  r = is_zero_page(content) ? base_->memory_.punch(offset, kPageSize)
                            : base_->memory_.write(offset, content, kPageSize);
  if (r < 0) return r;
  if (base_->own_) base_->own_->set(page);
  own_->reset(page);
  return 0;
}

// The pages of this piece, which are the only ones that were stored from `first` to merged_up_to_.
void Region::punch_moved(uint64_t first) {
  if (merged_up_to_ > first) memory_.punch(first * kPageSize, (merged_up_to_ - first) * kPageSize);
}

void Region::replace_base() {
  Region* base = base_;
  memory_ = std::move(base->memory_);
  own_ = std::move(base->own_);
  merged_up_to_ = 0;
  if (given_up_) free_given_up(&base->charged_);
  base_ = base->base_;
  if (base_) {
    base_->overlays_.erase(base->name_.id);
    base_->overlays_.emplace(name_.id, this);
  }
  base->base_ = nullptr;
  base->overlays_.clear();
  memory_.set_live_overlays(overlays_.size());
  settle();
  charge_overhead();
}

}  // namespace farside::server
