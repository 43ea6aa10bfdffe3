// A segment: one page of far space that holds objects, and its 64-byte descriptor, which is always resident.
//
// In the page, payloads grow from its begin and headers from its end:
//   | payload 0 | payload 1 | ...        free        ... | header 1 | header 0 |
// A payload of up to a cache line is within one line, a longer one begins at a line, so the access bit of a line stands
// for whole objects. A header contains the address of the object's owner; it may be out of date while the page is far
// (owners.h).
//
// The states, and what is permitted in each: docs/internals/object_paths.md. In short, a segment is
//   open      fetched as a page; access bits may be set
//   closing   the same, but no access bits are set any more, except by threads in scopes that began before
//   closed    no access bits; a thread that derefs an object holds the segment until its scope ends
//   emptying  no thread has a pointer into it: objects are moved out one by one, by a deref or by the evacuator
//   dead      empty; reused when all scopes have ended that may have read an owner before its object was moved
//   huge      an object larger than a segment, on its own pages
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "base/sync.h"
#include "objects/ptr_word.h"
#include "pager/pages/page_word.h"

namespace farside::objects {

using pager::PageIndex;

inline constexpr size_t kHeaderBytes = 8;
inline constexpr size_t kLargestObject = 4080;  // larger ones are huge
inline constexpr unsigned kMaxSlots = kPageSize / (PtrWord::kUnit + kHeaderBytes);
inline constexpr unsigned kLiveWords = 3;
static_assert(kMaxSlots <= kLiveWords * 64 && kMaxSlots <= 256);

// How the objects of a segment were placed together: created (made), or moved out of other segments (taken). Then
// whether the segment was fetched as a page since (was...), and judged (known): path_selector.h.
enum class Origin : uint8_t { kMade, kTaken, kWasMade, kWasTaken, kKnown };

// Whether the page of a segment may be evicted, whose structure has an eviction handler: not at all; evictors have
// asked for it; the handler has been called for all of its objects.
enum class Leave : uint8_t { kNo, kAsked, kYes };

enum class SegmentState : uint32_t { kNone, kOpen, kClosing, kClosed, kEmptying, kDead, kHuge };

// Whether a segment may change from one state to the other: the table of docs/internals/object_paths.md.
constexpr bool may_follow(SegmentState from, SegmentState to) {
  using enum SegmentState;
  switch (from) {
    case kNone:
      return to == kOpen || to == kHuge;
    case kOpen:
      return to == kClosing || to == kDead;
    case kClosing:
      return to == kClosed || to == kDead;
    case kClosed:
      return to == kOpen || to == kEmptying || to == kDead;
    case kEmptying:
      return to == kDead;
    case kDead:
    case kHuge:
      return to == kNone;
  }
  return false;
}

//   31               3 2      0
//  +------------------+--------+
//  | holders          | state  |   holders: scopes with a deref while it was closed
//  +------------------+--------+
class SegmentWord {
 public:
  static constexpr uint32_t kHolder = 8;
  constexpr explicit SegmentWord(uint32_t bits) : bits_(bits) {}
  constexpr SegmentState state() const { return static_cast<SegmentState>(bits_ & 7); }
  constexpr uint32_t holders() const { return bits_ / kHolder; }
  constexpr uint32_t bits() const { return bits_; }
  constexpr SegmentWord with(SegmentState state) const {
    return SegmentWord((bits_ & ~7u) | static_cast<uint32_t>(state));
  }

 private:
  uint32_t bits_;
};

struct alignas(kCacheLine) Segment {
  std::atomic<uint64_t> read_bits;         // access bits for reading: one for each line
  std::atomic<uint64_t> write_bits;        // access bits for writing
  std::atomic<uint64_t> live[kLiveWords];  // slots of live objects; live[0] of a huge object: its size in bytes
  std::atomic<uint32_t> state;             // a SegmentWord
  std::atomic<uint16_t> live_units;        // of live objects; plus one while a log fills the segment
  std::atomic<uint16_t> used_units;        // of all objects ever placed here
  std::atomic<uint16_t> owner_overrides;   // objects whose header is out of date
  std::atomic<uint8_t> lock;               // while emptying: guards the owners that headers name
  std::atomic<uint8_t> listed;             // in a list of the evacuator
  PageIndex next;                          // in a SegmentStack
  std::atomic<uint8_t> slots;              // headers in use
  std::atomic<uint8_t> origin;             // an Origin
  std::atomic<uint8_t> filling;            // 1 while a log places objects in it
  std::atomic<uint8_t> structure;          // the data structure of its objects; 0: none
  std::atomic<uint8_t> watched;            // by the clock (clock.h)
  std::atomic<uint8_t> leave;              // a Leave; of a structure with an eviction handler

  SegmentWord word() const { return SegmentWord(state.load(std::memory_order_seq_cst)); }
  // Changes from one state to another and keeps the holders. False: it is not in state `from`.
  bool change(SegmentState from, SegmentState to) {
    FARSIDE_DCHECK(may_follow(from, to));
    SegmentWord now = word();
    while (now.state() == from) {
      uint32_t bits = now.bits();
      if (state.compare_exchange_weak(bits, now.with(to).bits(), std::memory_order_seq_cst)) return true;
      now = SegmentWord(bits);
    }
    return false;
  }
  bool is_live(unsigned slot) const { return live[slot / 64].load(std::memory_order_acquire) >> (slot % 64) & 1; }
  bool is_mostly_garbage() const {
    return live_units.load(std::memory_order_relaxed) < used_units.load(std::memory_order_relaxed) / 2;
  }
  void lock_owners() {
    while (lock.exchange(1, std::memory_order_acquire)) cpu_relax();
  }
  void unlock_owners() {
    FARSIDE_DCHECK(lock.load(std::memory_order_relaxed) == 1);
    lock.store(0, std::memory_order_release);
  }
};
static_assert(sizeof(Segment) == 64, "one cache line: found from a line's number by masking");
static_assert(offsetof(Segment, read_bits) == 0 && offsetof(Segment, write_bits) == 8,
              "farside_object_deref looks there");

// A header: the owner of the object in this slot, and the kind of the object.
//   63                             16 15      8   7    6      0
//  +---------------------------------+----------+-----+--------+
//  | owner's address                 | units    | ali | type   |   ali: begins at a line; type: 0 without owners inside
//  +---------------------------------+----------+-----+--------+
struct Header {
  static uint64_t make(const uint64_t* owner, size_t units, unsigned kind) {
    return reinterpret_cast<uint64_t>(owner) << 16 | units << 8 | kind;
  }
  static uint64_t* owner(uint64_t header) { return reinterpret_cast<uint64_t*>(header >> 16); }
  static unsigned kind(uint64_t header) { return header & 0xff; }
  static unsigned kind(unsigned type, size_t alignment) { return type | (alignment > PtrWord::kUnit ? 0x80u : 0); }
  static unsigned type_of(unsigned kind) { return kind & 0x7f; }
  static size_t alignment(unsigned kind) { return kind & 0x80 ? kCacheLine : PtrWord::kUnit; }
};

// Slots of a segment.
class SlotSet {
 public:
  void add(unsigned slot) { words_[slot / 64] |= uint64_t{1} << slot % 64; }
  bool has(unsigned slot) const { return words_[slot / 64] >> slot % 64 & 1; }

 private:
  uint64_t words_[kLiveWords] = {};
};

// A bit for each line that an object occupies in its segment.
inline uint64_t lines_of(uint64_t address, size_t bytes) {
  unsigned first = address / kCacheLine % 64;
  unsigned last = (address + bytes - 1) / kCacheLine % 64;
  return (~uint64_t{0} >> (63 - (last - first))) << first;
}

// The descriptors of all pages of far space, found by address. Sparse: only touched parts use memory.
class SegmentTable {
 public:
  SegmentTable(std::byte* space, uint64_t bytes)
      : space_(reinterpret_cast<uint64_t>(space)),
        bytes_(bytes),
        segments_(static_cast<Segment*>(os::map_near(bytes / kPageSize * sizeof(Segment)))),
        taken_bits_(static_cast<std::atomic<uint64_t>*>(os::map_near(bytes / kPageSize * sizeof(uint64_t)))) {}
  ~SegmentTable() {
    os::unmap(segments_, bytes_ / kPageSize * sizeof(Segment));
    os::unmap(taken_bits_, bytes_ / kPageSize * sizeof(uint64_t));
  }
  SegmentTable(const SegmentTable&) = delete;
  SegmentTable& operator=(const SegmentTable&) = delete;

  explicit operator bool() const { return segments_ && taken_bits_; }
  bool contains(uint64_t address) const { return address - space_ < bytes_; }
  PageIndex index_of(uint64_t address) const { return static_cast<PageIndex>((address - space_) / kPageSize); }
  std::byte* address_of(PageIndex page) const {
    return reinterpret_cast<std::byte*>(space_ + uint64_t{page} * kPageSize);
  }
  Segment& operator[](PageIndex page) { return segments_[page]; }
  // The access bits for reading that the clock has taken away since the page was fetched.
  std::atomic<uint64_t>& taken_bits(PageIndex page) { return taken_bits_[page]; }
  Segment& of(uint64_t address) { return segments_[index_of(address)]; }
  // The address of a slot's header, in far memory.
  uint64_t* header_of(PageIndex page, unsigned slot) const {
    return reinterpret_cast<uint64_t*>(address_of(page) + kPageSize) - (slot + 1);
  }
  // The value of farside_object_view.access_bits.
  uintptr_t access_bits() const { return reinterpret_cast<uintptr_t>(segments_) - (space_ / kCacheLine); }

 private:
  uint64_t space_, bytes_;
  Segment* segments_;
  std::atomic<uint64_t>* taken_bits_;
};

// A stack of segments, pushed by many threads and taken by one, linked through the descriptors.
class SegmentStack {
 public:
  static constexpr PageIndex kNone = ~PageIndex{0};
  void push(SegmentTable& table, PageIndex page) {
    PageIndex head = head_.load(std::memory_order_relaxed);
    do table[page].next = head;
    while (!head_.compare_exchange_weak(head, page, std::memory_order_seq_cst));
  }
  PageIndex take_all() { return head_.exchange(kNone, std::memory_order_seq_cst); }
  bool empty() const { return head_.load(std::memory_order_relaxed) == kNone; }

 private:
  std::atomic<PageIndex> head_{kNone};
};

}  // namespace farside::objects
