#include "sandbox/mapped_ranges.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "sandbox/protocol.h"

namespace farside::sandbox {
namespace {

using wire::CallRange;

constexpr uint64_t kMinParked = 512 << 10;  // for less, page faults cost less than moves
constexpr uint64_t kTableBytes = 2 << 20;   // of addresses: what one page table maps

bool is_small(const CallRange& r) { return r.bytes < kMinParked && !r.written; }

}  // namespace

bool MappedRanges::reserve(uint64_t address, uint64_t bytes) {
  region_ = address;
  void* at = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
                  kReadOnlyFd, 0);
  return is_reserved_ = at != MAP_FAILED;
}

bool MappedRanges::map(const wire::CallPayload& call) {
  uint32_t count = call.head.range_count;
  has_changed_ = count != last_count_ || memcmp(last_, call.ranges.data(), count * sizeof(CallRange)) != 0;
  if (!has_changed_) return true;
  if (!map_changed(call)) {
    int error = errno;
    unmap_all();
    errno = error;
    return false;
  }
  last_count_ = count;
  memcpy(last_, call.ranges.data(), count * sizeof(CallRange));
  return true;
}

bool MappedRanges::map_changed(const wire::CallPayload& call) {
  changes_++;
  close_opened();
  note_wanted(call);
  park_unwanted();
  drop_oldest();
  for (uint32_t i = 0; i < call.head.range_count; i++) {
    if (!map_range(wire::call_range(call.ranges, i))) return false;
  }
  return true;
}

void MappedRanges::prepare_next() {
  if (!has_changed_ || opened_count_ == 0) return;
  close_opened();
  last_count_ = 0;
}

// Reserves the addresses of a range, whatever is there.
void MappedRanges::reserve_place(const CallRange& r) {
  if (!is_reserved_) return;
  mmap(place_of(r), r.bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, kReadOnlyFd,
       static_cast<off_t>(r.offset));
}

void MappedRanges::drop(uint32_t index) {
  Mapping& m = mappings_[index];
  munmap(m.at, m.range.bytes);
  if (!is_parked(m)) reserve_place(m.range);
  m = mappings_[--mapping_count_];
}

void MappedRanges::close_opened() {
  while (opened_count_ > 0) {
    const CallRange& r = opened_[--opened_count_];
    mprotect(place_of(r), r.bytes, PROT_NONE);
  }
}

void MappedRanges::unmap_all() {
  close_opened();
  while (mapping_count_ > 0) drop(0);
  last_count_ = 0;
}

bool MappedRanges::move_to(Mapping& m, char* to) {
  if (mremap(m.at, m.range.bytes, m.range.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED) return false;
  m.at = to;
  return true;
}

// At the same place within a page table, so that the kernel moves whole ones.
bool MappedRanges::park(Mapping& m) {
  if (m.range.bytes < kMinParked || m.range.bytes > kParkedAddresses) return false;
  uint64_t bytes = m.range.bytes + kTableBytes;
  void* spare = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (spare == MAP_FAILED) return false;
  auto* begin = static_cast<char*>(spare);
  char* to = begin + (region_ + m.range.offset - reinterpret_cast<uint64_t>(begin)) % kTableBytes;
  bool moved = move_to(m, to);
  if (!moved) return munmap(spare, bytes), false;
  reserve_place(m.range);
  if (to > begin) munmap(begin, static_cast<size_t>(to - begin));
  munmap(to + m.range.bytes, bytes - m.range.bytes - static_cast<uint64_t>(to - begin));
  return true;
}

void MappedRanges::park_unwanted() {
  for (uint32_t i = 0; i < mapping_count_;) {
    Mapping& m = mappings_[i];
    if (!m.is_wanted && !is_parked(m) && !park(m)) drop(i);
    else i++;
  }
}

// Unmaps what has not been used for longest, while too much is parked.
void MappedRanges::drop_oldest() {
  for (;;) {
    uint64_t parked = 0;
    uint32_t oldest = kMaxMappings, count = 0;
    for (uint32_t i = 0; i < mapping_count_; i++) {
      if (mappings_[i].is_wanted) continue;
      parked += mappings_[i].range.bytes;
      count++;
      if (oldest == kMaxMappings || mappings_[i].last_call < mappings_[oldest].last_call) oldest = i;
    }
    if (parked <= kParkedAddresses && count <= kMaxMappings - wire::kMaxCallRanges) return;
    drop(oldest);
  }
}

MappedRanges::Mapping* MappedRanges::find(const CallRange& range) {
  for (uint32_t i = 0; i < mapping_count_; i++) {
    if (memcmp(&mappings_[i].range, &range, sizeof range) == 0) return &mappings_[i];
  }
  return nullptr;
}

void MappedRanges::note_wanted(const wire::CallPayload& call) {
  for (uint32_t i = 0; i < mapping_count_; i++) mappings_[i].is_wanted = false;
  for (uint32_t i = 0; i < call.head.range_count; i++) {
    Mapping* m = find(wire::call_range(call.ranges, i));
    if (m) m->is_wanted = true, m->last_call = changes_;
  }
}

bool MappedRanges::map_range(const CallRange& r) {
  if (is_reserved_ && is_small(r) && mprotect(place_of(r), r.bytes, PROT_READ) == 0) {
    opened_[opened_count_++] = r;
    return true;
  }
  if (Mapping* m = find(r)) return !is_parked(*m) || move_to(*m, place_of(r));
  int protection = PROT_READ | (r.written ? PROT_WRITE : 0);
  void* at = mmap(place_of(r), r.bytes, protection, MAP_SHARED | (is_reserved_ ? MAP_FIXED : MAP_FIXED_NOREPLACE),
                  r.written ? kWritableFd : kReadOnlyFd, static_cast<off_t>(r.offset));
  if (at == MAP_FAILED) return false;
  mappings_[mapping_count_++] = {r, static_cast<char*>(at), true, changes_};
  return true;
}

}  // namespace farside::sandbox
