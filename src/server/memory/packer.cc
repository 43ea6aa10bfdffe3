#include "server/memory/packer.h"

#include <unistd.h>

#include <algorithm>

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

}  // namespace

Packer::Packer(packed::PackedPages pages, int memory, int file, uint64_t region_bytes)
    : pages_(pages),
      memory_(memory),
      file_(file),
      region_pages_(region_bytes / kPageBytes),
      pool_offset_(packed::pool_offset(region_bytes)),
      log_(packed::pool_bytes(region_bytes)) {}

Packer::Progress Packer::step() {
  if (uint64_t block = log_.sparse_block(); block != PoolLog::kNone) move_some(block);
  std::vector<Candidate> cold;
  bool more = true;
  for (unsigned i = 0; i < kTablePagesAtOnce && cold.size() < kBatch && (more = find_table_page()); i++)
    scan_table_page(&cold);
  pack(cold);
  release_blocks();
  return {more, !cold.empty()};
}

// Moves next_ to a page whose part of the table exists. False: there is none before the end.
bool Packer::find_table_page() {
  off_t at = os::lseek(file_, static_cast<off_t>(packed::kTableOffset + next_ * sizeof(uint64_t)), SEEK_DATA);
  uint64_t page = at < 0 ? region_pages_ : (static_cast<uint64_t>(at) - packed::kTableOffset) / sizeof(uint64_t);
  next_ = page < region_pages_ ? std::max(next_, page) : 0;
  return page < region_pages_;
}

// Up to the end of the table's page, or until there are enough.
void Packer::scan_table_page(std::vector<Candidate>* cold) {
  uint64_t words[kWordsInTablePage];
  uint64_t first = align_down(next_, kWordsInTablePage);
  uint64_t end = std::min(first + kWordsInTablePage, region_pages_);
  if (read_file(file_, packed::kTableOffset + first * sizeof(uint64_t), words, sizeof words) < 0) {
    next_ = end;
    return;
  }
  for (; next_ < end && cold->size() < kBatch; next_++) {
    PackedWord word(words[next_ - first]), place = slot(next_);
    if (!(place == PackedWord()) && !word.is_at_place_of(place)) set_slot(next_, {});  // it was written or discarded
    if (is_cold(word)) cold->push_back({next_, word});
  }
}

bool Packer::is_cold(PackedWord word) const {
  if (!word.is(State::kRaw) || word.epoch() == 0 || word.is_incompressible()) return false;
  return (pages_.epoch() + PackedWord::kEpochs - word.epoch()) % PackedWord::kEpochs >= packed::kColdEpochs;
}

void Packer::pack(const std::vector<Candidate>& cold) {
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
  std::byte content[kPageBytes], packed[packed::kMaxPackedBytes];
  PackedWord busy = cold.seen.with(State::kPacking);
  if (!change(cold.page, cold.seen, busy)) return false;
  bool readable = read_file(memory_, cold.page * kPageBytes, content, sizeof content) == 0;
  size_t bytes = readable ? packed::pack_page(content, packed) : 0;
  if (bytes > 0 && store(cold.page, packed, bytes, busy, State::kPunching)) return true;
  change(cold.page, busy, PackedWord::in_memory(State::kRaw, cold.seen.epoch(), readable && bytes == 0));
  return false;
}

// Writes a page's bytes to a new place in the pool. False: there is no room, or the page's word is not `before` any
// more; then nothing has changed.
bool Packer::store(uint64_t page, const std::byte* from, size_t bytes, PackedWord before, State state) {
  uint64_t position = log_.append(page, bytes);
  if (position == PoolLog::kNone) return false;
  PackedWord place = PackedWord::in_pool(state, position, static_cast<uint32_t>(bytes), pages_.epoch());
  bool stored = write_file(file_, pool_offset_ + position, from, bytes) == 0 && change(page, before, place);
  if (stored) set_slot(page, place.with(State::kPacked));
  else log_.release(position, bytes);
  return stored;
}

// The pages are kPunching, in ascending order: no client writes them.
void Packer::free_packed(std::vector<uint64_t> pages) {
  for (size_t i = 0; i < pages.size();) {
    size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) end++;
    bool freed = os::punch_hole(memory_, pages[i] * kPageBytes, (end - i) * kPageBytes) == 0;
    if (freed) pages_.count(static_cast<int64_t>(end - i));
    for (; i < end; i++) {
      PackedWord word = slot(pages[i]).with(State::kPunching);
      if (freed) change(pages[i], word, word.with(State::kPacked));
      else if (change(pages[i], word, PackedWord::in_memory(State::kRaw, pages_.epoch()))) set_slot(pages[i], {});
    }
  }
}

// Moves the pages of a block to the one that is being filled. Pages that are being written lose their room here when
// the table is scanned.
void Packer::move_some(uint64_t block) {
  std::byte packed[packed::kMaxPackedBytes];
  std::vector<uint64_t> pages(log_.pages(block).begin(), log_.pages(block).end());
  for (uint64_t page : pages) {
    PackedWord place = slot(page);
    bool is_there = !(place == PackedWord()) && place.position() / PoolLog::kBlockBytes == block;
    if (!is_there) continue;
    if (!(load(page) == place)) {
      set_slot(page, {});
      continue;
    }
    if (read_file(file_, pool_offset_ + place.position(), packed, place.bytes()) < 0) return;
    if (!store(page, packed, place.bytes(), place, State::kPacked) && !(load(page) == place)) set_slot(page, {});
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
  if (had) log_.release(slot.position(), slot.bytes());
  slot = place;
  count_ += static_cast<uint64_t>(has) - static_cast<uint64_t>(had);
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
