#include "pager/huge/frame_pool.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/os.h"

namespace farside::pager {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE

// 2 MiB-aligned addresses of private memory, which a forked child does not have.
std::byte* reserve(uint64_t bytes) {
  long mapped = os::map_aligned(bytes, kHugeBytes, PROT_READ | PROT_WRITE);
  if (os::is_error(mapped)) return nullptr;
  auto* area = reinterpret_cast<std::byte*>(mapped);
  os::madvise(area, bytes, MADV_DONTFORK);
  os::madvise(area, bytes, MADV_DONTDUMP);
  os::madvise(area, bytes, MADV_HUGEPAGE);
  return area;
}

}  // namespace

FramePool::~FramePool() { close(); }

void FramePool::close() {
  for (std::byte* area : {slots_.exchange(nullptr), std::exchange(scratch_, nullptr)}) {
    if (area) os::munmap(area, kSlots * kHugeBytes);
  }
}

bool FramePool::open() {
  if (is_open()) return true;
  if (!is_possible()) return false;
  scratch_ = reserve(kSlots * kHugeBytes);
  std::byte* slots = reserve(kSlots * kHugeBytes);
  if (!slots || !scratch_ || space_.watch(slots, kSlots * kHugeBytes) != 0) {
    slots_.store(slots);
    close();
    return false;
  }
  free_.store(0);
  empty_.store(~uint64_t{0});
  slots_.store(slots, std::memory_order_release);
  return true;
}

Slot FramePool::take_bit(std::atomic<uint64_t>& bits) {
  uint64_t now = bits.load(std::memory_order_acquire);
  while (now != 0) {
    if (bits.compare_exchange_weak(now, now & (now - 1), std::memory_order_acq_rel)) return std::countr_zero(now);
  }
  return -1;
}

void FramePool::put_bit(std::atomic<uint64_t>& bits, Slot slot) {
  uint64_t bit = uint64_t{1} << slot;
  [[maybe_unused]] uint64_t before = bits.fetch_or(bit, std::memory_order_acq_rel);
  FARSIDE_DCHECK((before & bit) == 0);
}

Slot FramePool::take() {
  Slot slot = take_bit(free_);
  if (slot >= 0) frames_.use_ready(kHugePages);
  return slot;
}

void FramePool::put(Slot slot) {
  frames_.put_ready(kHugePages);
  put_bit(free_, slot);
}

Slot FramePool::take_empty() { return take_bit(empty_); }
void FramePool::put_empty(Slot slot) { put_bit(empty_, slot); }

Slot FramePool::grow(uint64_t spare) {
  Slot slot = make(spare);
  if (slot >= 0) frames_.use_ready(kHugePages);
  return slot;
}

bool FramePool::prepare(uint64_t spare) {
  Slot slot = make(spare);
  if (slot >= 0) put_bit(free_, slot);
  return slot >= 0;
}

// The frame counts as ready.
Slot FramePool::make(uint64_t spare) {
  if (!is_open() || !may_grow()) return -1;
  if (!frames_.try_take_ready(kHugePages, spare)) return -1;
  Slot slot = take_empty();
  if (slot < 0) {
    frames_.give_ready(kHugePages);
    return -1;
  }
  std::byte* made = scratch_ + static_cast<uint64_t>(slot) * kHugeBytes;
  bool huge = os::madvise(made, kHugeBytes, kPopulateWrite) == 0 && space_.is_huge(made, kHugeBytes);
  if (huge && space_.move(address_of(slot), made, kHugeBytes) == static_cast<long>(kHugeBytes)) return slot;
  refused_.store(now_ns(), std::memory_order_relaxed);
  os::madvise(made, kHugeBytes, MADV_DONTNEED);
  drop_copied(slot);
  frames_.give_ready(kHugePages);
  return -1;
}

bool FramePool::drop_free() {
  Slot slot = take_bit(free_);
  if (slot < 0) return false;
  drop_copied(slot);
  frames_.give_ready(kHugePages);
  return true;
}

void FramePool::drop(Slot slot) {
  drop_copied(slot);
  frames_.give(kHugePages);
}

void FramePool::drop_copied(Slot slot) {
  os::madvise(address_of(slot), kHugeBytes, MADV_DONTNEED);
  put_empty(slot);
}

void FramePool::reset_in_child() {
  uint64_t frames = free() * kHugePages;
  slots_.store(nullptr);  // the child does not have the addresses
  scratch_ = nullptr;
  free_.store(0);
  empty_.store(0);
  asked_.store(0);
  target_.store(kMinReady);
  if (frames > 0) frames_.give_ready(frames);
}

}  // namespace farside::pager
