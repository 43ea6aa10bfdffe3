#include "pager/pages/twins.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

namespace farside::pager {
namespace {

constexpr uint32_t kMaxChunks = 1 << 16;  // 16 GiB of twins
constexpr uint64_t kTrial = 2048;         // evictions during which twins are made although they do not pay
constexpr uint64_t kTrialPeriod = 16 * kTrial;

// Moves an average by an eighth of the difference.
void average(std::atomic<uint32_t>& of, uint64_t value) {
  auto now = static_cast<int64_t>(of.load(std::memory_order_relaxed));
  int64_t next = now == 0 ? static_cast<int64_t>(value) : now + (static_cast<int64_t>(value) - now) / 8;
  of.store(static_cast<uint32_t>(std::clamp<int64_t>(next, 0, UINT32_MAX)), std::memory_order_relaxed);
}

}  // namespace

Twins::Twins(WriteBack mode, uint64_t pages, const Frames& frames) : mode_(mode), pages_(pages), frames_(frames) {
  if (!enabled()) return;
  slots_ = static_cast<std::atomic<uint32_t>*>(os::map_near(pages * sizeof *slots_));
  chunks_ = static_cast<Chunk*>(os::map_near(kMaxChunks * sizeof *chunks_));
  if (!slots_ || !chunks_) die("cannot reserve addresses for twins; lower --tune space, or give --tune writeback=page");
}

Twins::~Twins() {
  if (!enabled()) return;
  for (uint32_t i = 0; i < chunk_count_.load(); i++) near_free(chunks_[i].twins, kChunk * kPageSize);
  os::unmap(slots_, pages_ * sizeof *slots_);
  os::unmap(chunks_, kMaxChunks * sizeof *chunks_);
}

bool Twins::should_make() const {
  if (mode_ != WriteBack::kAuto) return mode_ == WriteBack::kLine;
  if (!remote_.load(std::memory_order_relaxed)) return false;
  return gain_.load(std::memory_order_relaxed) != kNone || frames_.evicted() % kTrialPeriod < kTrial;
}

void Twins::make(PageIndex page, const std::byte* content, unsigned thread) {
  if (!should_make()) return;
  FARSIDE_DCHECK(slots_[page].load(std::memory_order_relaxed) == 0);
  uint32_t slot = take(shards_[thread % kShards]);
  if (slot == 0) return;
  bool timed = slot % 16 == 0;
  uint64_t start = timed ? ticks() : 0;
  memcpy(at(slot), content, kPageSize);
  if (timed) average(copy_, ticks() - start);
  slots_[page].store(slot, std::memory_order_relaxed);  // published by the change of the page's word that follows
}

uint64_t Twins::changes(PageIndex page, const std::byte* now, PageIndex next) {
  uint32_t slot = slots_[page].exchange(0, std::memory_order_relaxed);
  FARSIDE_CHECK(slot != 0);
  uint32_t next_slot = slots_[next].load(std::memory_order_relaxed);
  uint64_t lines = changed_lines(now, at(slot), at(next_slot != 0 ? next_slot : slot));
  give(slot);
  return lines;
}

void Twins::drop(PageIndex page) {
  if (!has(page)) return;
  give(slots_[page].exchange(0, std::memory_order_relaxed));
}

// ---- The pool ----

uint32_t Twins::take(Shard& shard) {
  LockGuard guard(shard.lock);
  if (shard.free == 0) add_chunk(shard);
  uint32_t slot = shard.free;
  if (slot != 0) memcpy(&shard.free, at(slot), sizeof shard.free);
  return slot;
}

uint64_t Twins::max_twins() const {
  bool many = mode_ == WriteBack::kLine || gain_.load(std::memory_order_relaxed) == kMuch;
  return many ? frames_.limit() : frames_.limit() / 4;
}

void Twins::add_chunk(Shard& shard) {
  LockGuard guard(chunks_lock_);
  uint32_t count = chunk_count_.load(std::memory_order_relaxed);
  if (count == kMaxChunks || (count + 1) * kChunk > max_twins()) return;
  chunks_[count] = {static_cast<std::byte*>(near_alloc(kChunk * kPageSize)), &shard};
  chunk_count_.store(count + 1, std::memory_order_release);
  for (uint32_t i = 0; i < kChunk; i++) {
    uint32_t slot = count * kChunk + i + 1, next = i + 1 < kChunk ? slot + 1 : 0;
    memcpy(at(slot), &next, sizeof next);
  }
  shard.free = count * kChunk + 1;
}

void Twins::give(uint32_t slot) {
  FARSIDE_CHECK(slot != 0 && (slot - 1) / kChunk < chunk_count_.load(std::memory_order_relaxed));
  Shard& shard = *chunks_[(slot - 1) / kChunk].shard;
  LockGuard guard(shard.lock);
  memcpy(at(slot), &shard.free, sizeof shard.free);
  shard.free = slot;
}

// ---- What pays ----

void Twins::record_evictor_time(Method method, uint64_t pages, uint64_t ticks) {
  average(evictor_time_[method], ticks / pages);
}

void Twins::record_link_time(Method method, uint64_t pages, uint64_t ticks) {
  if (pages < 8) return;  // too few: the time is a latency
  average(link_time_[method], ticks / pages);
  decide();
}

void Twins::decide() {
  auto get = [](const std::atomic<uint32_t>& a) { return uint64_t{a.load(std::memory_order_relaxed)}; };
  if (get(link_time_[kWhole]) == 0 || get(link_time_[kByLines]) == 0) return;
  uint64_t whole = get(evictor_time_[kWhole]) + get(link_time_[kWhole]),
           cost = get(copy_) + get(evictor_time_[kByLines]);
  uint64_t gain = whole - std::min(whole, get(link_time_[kByLines]));
  gain_.store(gain < cost ? kNone : (gain < 2 * cost ? kSome : kMuch), std::memory_order_relaxed);
}

}  // namespace farside::pager
