#include "packed/packed_pages.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/os.h"
#include "packed/codec.h"

namespace farside::packed {
namespace {

constexpr int kAgain = 1;  // the word has changed
constexpr unsigned kMaxAttempts = 1000;

// Waits a little for the packer, which holds a page for some microseconds, or until it gets a processor again.
void wait_a_little(unsigned round) {
  constexpr unsigned kSpins = 200;
  constexpr uint64_t kSleepNs = 50'000;
  if (round < kSpins) cpu_relax();
  else os::nanosleep_ns(kSleepNs);
}

}  // namespace

int PackedPages::read(RawPages& raw, uint64_t offset, std::byte* to, size_t bytes, Unpacker& unpacker) const {
  for (uint64_t end = offset + bytes; offset < end;) {
    size_t at = offset % kPageBytes, part = std::min<uint64_t>(kPageBytes - at, end - offset);
    int r = kAgain;
    for (unsigned i = 0; r == kAgain && i < kMaxAttempts; i++)
      r = read_in_page(raw, offset / kPageBytes, at, to, part, unpacker);
    if (r != 0) return r == kAgain ? -EIO : r;
    offset += part;
    to += part;
  }
  return 0;
}

// What was read is the page's content if the word says afterwards that it was at the same place all the time. Away and
// back it is brought by a write only, and there is none while the page is read, or by the packer, which counts that.
int PackedPages::read_in_page(RawPages& raw, uint64_t page, size_t at, std::byte* to, size_t bytes,
                              Unpacker& unpacker) const {
  uint64_t returned = returns(page).load(std::memory_order_acquire);
  PackedWord before = load(page);
  if (!before.is_stored()) {
    int r = raw.read(page * kPageBytes + at, to, bytes);
    std::atomic_thread_fence(std::memory_order_acquire);
    PackedWord after = load(page);
    if (after.is_stored() || returns(page).load(std::memory_order_relaxed) != returned) return kAgain;
    note_use(page, after);
    return r;
  }
  bool whole = bytes == kPageBytes;
  bool good = unpack(raw, before, whole ? to : unpacker.scratch(), unpacker);
  std::atomic_thread_fence(std::memory_order_acquire);
  PackedWord after = load(page);
  if (!after.is_at_place_of(before) || returns(page).load(std::memory_order_relaxed) != returned) return kAgain;
  if (!good) return -EIO;
  if (!whole) memcpy(to, unpacker.scratch() + at, bytes);
  note_use_in_pool(page, after);
  return 0;
}

// The bytes may change meanwhile: the word tells the caller.
bool PackedPages::unpack(RawPages& raw, PackedWord word, std::byte* page, Unpacker& unpacker) const {
  if (word.is_in_overflow()) return raw.read_overflow(word.slot(), page) == 0;
  if (word.bytes() > kMaxPackedBytes || word.position() + word.bytes() > pool_bytes_) return false;
  Codec codec = word.is_zstd() ? Codec::kZstd : Codec::kLz4;
  return unpacker.unpack(codec, pool_ + word.position(), word.bytes(), page);
}

// The page is in use, so it is not cold.
void PackedPages::note_use(uint64_t page, PackedWord seen) const {
  if (seen.is(State::kWriting) || seen.epoch() == 0) return;
  PackedWord used = PackedWord::in_memory(State::kRaw, epoch(), seen.refusals());
  if (!(seen == used)) change(page, seen, used);
}

// The packer alone changes the word of a page that it is freeing. In the overflow file two uses at any times are two.
void PackedPages::note_use_in_pool(uint64_t page, PackedWord seen) const {
  uint32_t now = epoch(), age = seen.age(now);
  bool again = age < kStaleAge && (seen.is_in_overflow() || (seen.is_zstd() && age > 0));
  PackedWord used = seen.used_at(now).marked(seen.is_marked() || again);
  if (seen.is(State::kPacked) && !(used == seen)) change(page, seen, used);
}

int PackedPages::begin_write(RawPages& raw, uint64_t offset, size_t bytes, Unpacker& unpacker) const {
  for (uint64_t end = offset + bytes; offset < end;) {
    uint64_t part = std::min<uint64_t>(kPageBytes - offset % kPageBytes, end - offset);
    int r = begin_page(raw, offset / kPageBytes, part == kPageBytes, unpacker);
    if (r < 0) return r;
    offset += part;
  }
  return 0;
}

int PackedPages::begin_page(RawPages& raw, uint64_t page, bool whole, Unpacker& unpacker) const {
  for (unsigned i = 0; i < kMaxAttempts; i++) {
    uint64_t returned = returns(page).load(std::memory_order_acquire);
    PackedWord seen = load(page);
    for (unsigned round = 0; seen.is(State::kPunching) && raw.may_be_freeing(); seen = load(page))
      wait_a_little(round++);
    int r = kAgain;
    if (seen.is_stored()) r = begin_packed(raw, page, seen, returned, whole, unpacker);
    else if (change(page, seen, PackedWord::in_memory(State::kWriting, epoch()))) r = 0;
    if (r != kAgain) return r;
  }
  return -EIO;
}

// A page of which a part is to be written is brought back first. Its bytes are read before the packer may use their
// place for something else.
int PackedPages::begin_packed(RawPages& raw, uint64_t page, PackedWord seen, uint64_t returned, bool whole,
                              Unpacker& unpacker) const {
  bool good = whole || unpack(raw, seen, unpacker.scratch(), unpacker);
  std::atomic_thread_fence(std::memory_order_acquire);
  bool stayed = load(page).is_at_place_of(seen) && returns(page).load(std::memory_order_relaxed) == returned;
  if (!stayed || !good) return stayed ? -EIO : kAgain;
  if (!change(page, seen, PackedWord::in_memory(State::kWriting, epoch()))) return kAgain;
  count(-1);
  return whole ? 0 : raw.write(page * kPageBytes, unpacker.scratch(), kPageBytes);
}

void PackedPages::end_write(uint64_t offset, size_t bytes) const {
  for (uint64_t page = offset / kPageBytes; page * kPageBytes < offset + bytes; page++)
    word(page).store(PackedWord::in_memory(State::kRaw, epoch()).value(), std::memory_order_release);
}

int PackedPages::discard(RawPages& raw, int table_fd, uint64_t offset, uint64_t bytes, Unpacker& unpacker) const {
  bool whole_pages = offset % kPageBytes == 0 && bytes % kPageBytes == 0;
  if (!whole_pages) {
    int r = begin_write(raw, offset, bytes, unpacker);
    if (r == 0) r = raw.punch(offset, bytes);
    if (r == 0) end_write(offset, bytes);
    return r;
  }
  uint64_t first = offset / kPageBytes, end = first + bytes / kPageBytes;
  int r = for_each_used(table_fd, first, end, [&](uint64_t page) { return begin_page(raw, page, true, unpacker); });
  if (r == 0) r = raw.punch(offset, bytes);
  if (r < 0) return r;
  return for_each_used(table_fd, first, end, [&](uint64_t page) {
    word(page).store(0, std::memory_order_release);
    return 0;
  });
}

// Calls visit(page) for the pages whose word is not 0, until one is not 0. Where the table is a hole, it stays one.
template <typename Visit>
int PackedPages::for_each_used(int table_fd, uint64_t first, uint64_t end, Visit visit) const {
  for (uint64_t page = first; page < end;) {
    off_t data = os::lseek(table_fd, static_cast<off_t>(kTableOffset + page * sizeof(uint64_t)), SEEK_DATA);
    if (data < 0) return 0;
    page = std::max(page, (static_cast<uint64_t>(data) - kTableOffset) / sizeof(uint64_t));
    for (uint64_t stop = std::min(end, align_down(page, kWordsInTablePage) + kWordsInTablePage); page < stop; page++) {
      if (load(page) == PackedWord()) continue;
      if (int r = visit(page); r != 0) return r;
    }
  }
  return 0;
}

void PackedPages::advance_epoch() const {
  std::atomic_ref(header_->epoch).store(epoch() % PackedWord::kLastEpoch + 1, std::memory_order_relaxed);
}

}  // namespace farside::packed
