#include "server/memory/packer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "packed/codec.h"
#include "server/memory/file_io.h"
#include "server/memory/guarded.h"

namespace farside::server {
namespace {

using packed::kPageBytes;
using packed::kWordsInTablePage;
using packed::PackedWord;
using packed::State;

constexpr size_t kWorthBytes = kPageBytes / 16;  // that zstd has to save

}  // namespace

Packer::Packer(packed::PackedPages pages, int memory, int file, uint64_t region_bytes, Compression compression,
               Overflow* overflow)
    : pages_(pages),
      memory_(memory),
      file_(file),
      region_pages_(region_bytes / kPageBytes),
      pool_offset_(packed::pool_offset(region_bytes)),
      compression_(compression),
      overflow_(overflow),
      log_(packed::pool_bytes(region_bytes)) {}

Packer::~Packer() {
  for (const auto& [table_page, slots] : slots_) {
    for (PackedWord place : *slots) {
      if (place.is_in_overflow()) overflow_->file()->release(place.slot());
    }
  }
}

Packer::Progress Packer::step() {
  if (uint64_t block = log_.sparse_block(); block != PoolLog::kNone) move_some(block);
  std::vector<Candidate> found;
  bool more = true;
  for (unsigned i = 0; i < kTablePagesAtOnce && found.size() < kBatch && (more = find_table_page()); i++)
    scan_table_page(&found);
  std::ranges::stable_sort(found, {}, &Candidate::action);
  for (auto begin = found.begin(), end = begin; begin != found.end(); begin = end) {
    end = std::upper_bound(begin, found.end(), *begin, [](auto& a, auto& b) { return a.action < b.action; });
    execute({begin, end});
  }
  release_blocks();
  return {more, !found.empty()};
}

// All have the same action.
void Packer::execute(std::span<const Candidate> found) {
  switch (found.front().action) {
    case Action::kNone:
      return;
    case Action::kPack:
      return pack(found);
    case Action::kRepack:
      for (const Candidate& c : found) repack(c);
      return;
    case Action::kMoveOut:
      return move_out(found);
    case Action::kBringBack:
      for (const Candidate& c : found) bring_back(c);
      return;
  }
}

// Moves next_ to a page whose part of the table exists. False: there is none before the end.
bool Packer::find_table_page() {
  off_t at = os::lseek(file_, static_cast<off_t>(packed::kTableOffset + next_ * sizeof(uint64_t)), SEEK_DATA);
  uint64_t page = at < 0 ? region_pages_ : (static_cast<uint64_t>(at) - packed::kTableOffset) / sizeof(uint64_t);
  next_ = page < region_pages_ ? std::max(next_, page) : 0;
  return page < region_pages_;
}

// Up to the end of the table's page, or until there are enough.
void Packer::scan_table_page(std::vector<Candidate>* found) {
  uint64_t words[kWordsInTablePage];
  uint64_t first = align_down(next_, kWordsInTablePage);
  uint64_t end = std::min(first + kWordsInTablePage, region_pages_);
  if (read_file(file_, packed::kTableOffset + first * sizeof(uint64_t), words, sizeof words) < 0) {
    next_ = end;
    return;
  }
  for (; next_ < end && found->size() < kBatch; next_++) {
    PackedWord word(words[next_ - first]), place = slot(next_);
    if (!(place == PackedWord()) && !word.is_at_place_of(place)) set_slot(next_, {});  // it was written or discarded
    if (Action action = action_for(word, place); action != Action::kNone) found->push_back({next_, word, action});
  }
}

Packer::Action Packer::action_for(PackedWord word, PackedWord place) const {
  if (word.is_stored() && !word.is_at_place_of(place)) return Action::kNone;
  if (word.is_in_overflow()) return word.is_marked() ? Action::kBringBack : Action::kNone;
  if (overflow_ && overflow_->wants_pages() && has_to_leave(word)) return Action::kMoveOut;
  if (is_cold(word)) return Action::kPack;
  return is_in_wrong_form(word) ? Action::kRepack : Action::kNone;
}

// Pages leave as they are when they cannot be compressed.
bool Packer::has_to_leave(PackedWord word) const {
  if (word.is(State::kPacked)) return word.age(pages_.epoch()) >= overflow_->age();
  if (!word.is(State::kRaw) || word.epoch() == 0 || word.refusals() == 0) return false;
  uint32_t epochs = epochs_since_use(word);
  return overflow_->age() == 0 ||
         (epochs >= packed::kColdEpochs && epochs / PackedWord::kEpochsOfAge >= overflow_->age());
}

// A page that LZ4 cannot compress is cold for zstd when it is not used for as long as others in the pool.
bool Packer::is_cold(PackedWord word) const {
  if (!word.is(State::kRaw) || word.epoch() == 0) return false;
  uint32_t epochs = epochs_since_use(word);
  if (word.refusals() == 0) return epochs >= packed::kColdEpochs || (overflow_ && overflow_->packs_all());
  return word.refusals() == 1 && compression_ == Compression::kAuto &&
         epochs >= packed::kStaleAge * PackedWord::kEpochsOfAge;
}

uint32_t Packer::epochs_since_use(PackedWord raw) const {
  return (pages_.epoch() + PackedWord::kEpochs - raw.epoch()) % PackedWord::kEpochs;
}

// Pages of a repeated word and the like are small enough.
bool Packer::is_in_wrong_form(PackedWord word) const {
  if (compression_ != Compression::kAuto || !word.is(State::kPacked)) return false;
  if (word.is_zstd()) return word.is_marked();
  return !word.is_marked() && word.bytes() > 2 * kWorthBytes && word.age(pages_.epoch()) >= packed::kStaleAge;
}

void Packer::pack(std::span<const Candidate> cold) {
  std::vector<uint64_t> packed;
  freeing_.store(true, std::memory_order_seq_cst);
  for (const Candidate& c : cold) {
    if (pack_page(c)) packed.push_back(c.page);
  }
  free_packed(std::move(packed));
  freeing_.store(false, std::memory_order_seq_cst);
}

// Afterwards the page is kPunching; or as it was, if it cannot be compressed or was accessed meanwhile.
bool Packer::pack_page(const Candidate& cold) {
  std::byte page[kPageBytes];
  PackedWord busy = cold.seen.with(State::kPacking);
  if (!change(cold.page, cold.seen, busy)) return false;
  bool readable = read_file(memory_, cold.page * kPageBytes, page, sizeof page) == 0;
  bool by_zstd = compression_ == Compression::kZstd || cold.seen.refusals() > 0;
  Content content;
  bool smaller = readable && shrink_by_lz4(page, &content);
  smaller |= readable && by_zstd && shrink_by_zstd(page, &content);
  if (smaller && store(cold.page, content, busy, State::kPunching)) {
    if (overflow_) overflow_->note_freed(kPageBytes - content.bytes);
    return true;
  }
  uint32_t refusals = readable && !smaller ? 1 + by_zstd : cold.seen.refusals();
  change(cold.page, busy, PackedWord::in_memory(State::kRaw, cold.seen.epoch(), refusals));
  return false;
}

bool Packer::shrink_by_lz4(const std::byte* page, Content* content) {
  content->bytes = packed::pack_page(page, content->data);
  content->is_zstd = false;
  return content->bytes > 0;
}

// False: it does not save enough over what the content is.
bool Packer::shrink_by_zstd(const std::byte* page, Content* content) {
  std::byte data[packed::kMaxPackedBytes];
  size_t most = content->bytes > 0 ? saturating_sub(content->bytes, kWorthBytes) : sizeof data;
  size_t bytes = zstd_.pack(page, data);
  if (bytes == 0 || bytes > most) return false;
  memcpy(content->data, data, bytes);
  content->bytes = bytes;
  content->is_zstd = true;
  return true;
}

// By the other codec. If that gains nothing, or a client has damaged the page, the word says so.
void Packer::repack(const Candidate& stored) {
  std::byte page[kPageBytes];
  Content content;
  if (!read_content(slot(stored.page), &content)) return;
  bool was_zstd = content.is_zstd;
  bool shrunk = unpacker_.unpack(content.codec(), content.data, content.bytes, page) &&
                (was_zstd ? shrink_by_lz4(page, &content) : shrink_by_zstd(page, &content));
  if (shrunk) store(stored.page, content, stored.seen, State::kPacked);
  else change(stored.page, stored.seen, stored.seen.marked(!was_zstd));
}

bool Packer::read_content(PackedWord place, Content* content) const {
  content->bytes = place.bytes();
  content->is_zstd = place.is_zstd();
  return read_file(file_, pool_offset_ + place.position(), content->data, content->bytes) == 0;
}

// Writes a page to a new place in the pool. False: there is no room, or the page's word is not `before` any more; then
// nothing has changed.
bool Packer::store(uint64_t page, const Content& content, PackedWord before, State state) {
  uint64_t position = log_.append(page, content.bytes);
  if (position == PoolLog::kNone) return false;
  PackedWord place = PackedWord::in_pool(state, position, static_cast<uint32_t>(content.bytes), slot(page).moves() + 1,
                                         content.is_zstd);
  bool same_form = before.is_stored() && before.is_zstd() == content.is_zstd;
  place = before.is_stored() ? place.used_as(before) : place.used_at(before.epoch());
  place = place.marked(same_form && before.is_marked());
  bool stored =
      write_file(file_, pool_offset_ + position, content.data, content.bytes) == 0 && change(page, before, place);
  if (stored) set_slot(page, place.with(State::kPacked));
  else log_.release(position, content.bytes);
  return stored;
}

// To neighbouring slots, as far as there are some. A page leaves RAM when it is on the disk, and only if it was not
// accessed meanwhile.
void Packer::move_out(std::span<const Candidate> cold) {
  alignas(kPageBytes) std::byte pages[OverflowFile::kMaxRun * kPageBytes];
  for (OverflowFile::Run run; !cold.empty() && (run = overflow_->file()->take(cold.size())).count > 0;
       cold = cold.subspan(run.count)) {
    bool ready[OverflowFile::kMaxRun];
    for (size_t i = 0; i < run.count; i++) ready[i] = begin_moving(cold[i], pages + i * kPageBytes);
    bool written = overflow_->file()->write(run, pages) == 0;
    std::vector<uint64_t> raw;
    freeing_.store(true, std::memory_order_seq_cst);
    for (size_t i = 0; i < run.count; i++) {
      bool moved = ready[i] && end_moving(cold[i], written, run.first + i);
      if (!moved) overflow_->file()->release(run.first + i);
      else if (!cold[i].seen.is_stored()) raw.push_back(cold[i].page);
    }
    free_packed(std::move(raw));
    freeing_.store(false, std::memory_order_seq_cst);
  }
}

// Reads the page. A raw one is kPacking then.
bool Packer::begin_moving(const Candidate& cold, std::byte* page) {
  if (!cold.seen.is_stored())
    return change(cold.page, cold.seen, cold.seen.with(State::kPacking)) &&
           (read_file(memory_, cold.page * kPageBytes, page, kPageBytes) == 0 || end_moving(cold, false, 0));
  Content content;
  return read_content(slot(cold.page), &content) &&
         unpacker_.unpack(content.codec(), content.data, content.bytes, page);
}

// Whether the page is in the slot now; a raw one is kPunching then.
bool Packer::end_moving(const Candidate& cold, bool written, uint64_t slot) {
  bool raw = !cold.seen.is_stored();
  PackedWord before = raw ? cold.seen.with(State::kPacking) : cold.seen;
  if (!written) {
    if (raw) change(cold.page, before, cold.seen);
    return false;
  }
  // It counts as used long ago, so that its next use there is the first.
  constexpr uint32_t kLongAgo = (packed::kStaleAge + 2) * PackedWord::kEpochsOfAge;
  uint32_t stale = (pages_.epoch() + PackedWord::kEpochs - kLongAgo) % PackedWord::kEpochs;
  State state = raw ? State::kPunching : State::kPacked;
  PackedWord place = PackedWord::in_overflow(state, slot, this->slot(cold.page).moves() + 1).used_at(stale);
  uint64_t freed = raw ? kPageBytes : cold.seen.bytes();
  if (!change(cold.page, before, place)) return false;
  set_slot(cold.page, place.with(State::kPacked));
  overflow_->note_freed(freed);
  return true;
}

// To the memory file, where it is not used by others while it is kPunching.
void Packer::bring_back(const Candidate& used) {
  alignas(kPageBytes) std::byte page[kPageBytes];
  if (!overflow_->take_room(kPageBytes) || overflow_->file()->read(used.seen.slot(), page) < 0) return;
  PackedWord busy = used.seen.with(State::kPunching);
  freeing_.store(true, std::memory_order_seq_cst);
  if (change(used.page, used.seen, busy)) {
    bool back = write_file(memory_, used.page * kPageBytes, page, kPageBytes) == 0;
    if (back) {
      pages_.returns(used.page).fetch_add(1, std::memory_order_seq_cst);
      pages_.count(-1);
      set_slot(used.page, {});
    } else {
      os::punch_hole(memory_, used.page * kPageBytes, kPageBytes);
    }
    change(used.page, busy, back ? PackedWord::in_memory(State::kRaw, pages_.epoch()) : used.seen.marked(false));
  }
  freeing_.store(false, std::memory_order_seq_cst);
}

// The pages are kPunching, in ascending order: no client writes them.
void Packer::free_packed(std::vector<uint64_t> pages) {
  for (size_t i = 0; i < pages.size();) {
    size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) end++;
    bool freed = os::punch_hole(memory_, pages[i] * kPageBytes, (end - i) * kPageBytes) == 0;
    if (freed) pages_.count(static_cast<int64_t>(end - i));
    for (; i < end; i++) {
      PackedWord word = slot(pages[i]).with(State::kPunching);  // no one else has changed it
      if (freed) change(pages[i], word, word.with(State::kPacked));
      else if (change(pages[i], word, PackedWord::in_memory(State::kRaw, pages_.epoch()))) set_slot(pages[i], {});
    }
  }
}

// Moves the pages of a block to the one that is being filled. Pages that are being written lose their room here when
// the table is scanned.
void Packer::move_some(uint64_t block) {
  Content content;
  std::vector<uint64_t> pages(log_.pages(block).begin(), log_.pages(block).end());
  for (uint64_t page : pages) {
    PackedWord place = slot(page), word = load(page);
    bool is_in_pool = !(place == PackedWord()) && !place.is_in_overflow();
    bool is_there = is_in_pool && place.position() / PoolLog::kBlockBytes == block;
    if (!is_there) continue;
    if (word.is_at_place_of(place)) {
      if (!read_content(place, &content)) return;
      if (store(page, content, word, State::kPacked)) continue;
      word = load(page);
    }
    if (!word.is_at_place_of(place)) set_slot(page, {});
  }
}

void Packer::release_blocks() {
  for (uint64_t block; (block = log_.take_freed()) != PoolLog::kNone;)
    os::punch_hole(file_, pool_offset_ + block * PoolLog::kBlockBytes, PoolLog::kBlockBytes);
}

PackedWord Packer::slot(uint64_t page) const {
  auto found = slots_.find(page / kWordsInTablePage);
  return found == slots_.end() ? PackedWord() : (*found->second)[page % kWordsInTablePage];
}

// Releases the room that the page had. place: a kPacked word, or none.
void Packer::set_slot(uint64_t page, PackedWord place) {
  auto& slots = slots_[page / kWordsInTablePage];
  if (!slots) slots = std::make_unique<Slots>();
  PackedWord& slot = (*slots)[page % kWordsInTablePage];
  bool had = !(slot == PackedWord()), has = !(place == PackedWord());
  bool was_zstd = slot.is_zstd(), was_in_overflow = slot.is_in_overflow();
  if (was_in_overflow) overflow_->file()->release(slot.slot());
  else if (had) log_.release(slot.position(), slot.bytes());
  slot = place;
  count_ += static_cast<uint64_t>(has) - static_cast<uint64_t>(had);
  zstd_count_ += static_cast<uint64_t>(place.is_zstd()) - static_cast<uint64_t>(was_zstd);
  overflow_count_ += static_cast<uint64_t>(place.is_in_overflow()) - static_cast<uint64_t>(was_in_overflow);
}

// A client may have changed the table as it likes, or the machine may have lost a page of it.
bool Packer::change(uint64_t page, PackedWord from, PackedWord to) const {
  bool changed = false;
  return guarded([&] { changed = pages_.change(page, from, to); }) && changed;
}
PackedWord Packer::load(uint64_t page) const {
  PackedWord word;
  guarded([&] { word = pages_.load(page); });
  return word;
}

}  // namespace farside::server
