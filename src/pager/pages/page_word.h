// The page word: the state of one page of far space in one atomic 64-bit word. A thread that moves the state to
// kFetching or kEvicting, or sets the upgrading bit, owns the page until its next transition; other threads wait or
// retry. The legal transitions, and what each owner may do, are in docs/internals/page_states.md; may_become() checks
// them in debug builds.
//   63  62  61      48 47          32 31          16 15  14  13 12 11 10   9   8    7    6   5   4   3  2   0
//  +---+---+----------+--------------+--------------+---+---+---+-----+---+---+----+----+---+---+---+---+-----+
//  |frn|fre| owner    | epoch        | pins         |opa|obj|upg| prio|wf |sld|que |pref|cow|hot|sto|dir|state|
//  +---+---+----------+--------------+--------------+---+---+---+-----+---+---+----+----+---+---+---+---+-----+
#pragma once
#include <atomic>
#include <cstdint>

#include "base/log.h"

namespace farside::pager {

using PageIndex = uint32_t;  // page number within the far space: up to 16 TiB

enum class PageState : uint64_t {
  kUnmapped = 0,   // belongs to no allocation; an access is an error of the program
  kUntouched = 1,  // allocated, reads as zero; has neither a frame nor a copy on the server
  kFar = 2,        // content is on the server only
  kFetching = 3,   // owned by a fetcher, which holds a frame for it
  kNear = 4,       // mapped
  kEvicting = 5,   // owned by an evictor or a range operation
};

class PageWord {
 public:
  static constexpr uint64_t kStateMask = 0x7;
  static constexpr uint64_t kDirty = 1u << 3;   // changed since it was fetched; mapped writable unless cow is set
  static constexpr uint64_t kStored = 1u << 4;  // the server has a copy, which is out of date while the page is dirty
  static constexpr uint64_t kHot = 1u << 5;     // used again since it was fetched: the reference bit of the policies
  static constexpr uint64_t kCow = 1u << 6;     // write-protected by a fork although it may be dirty
  static constexpr uint64_t kPrefetched = 1u << 7;     // fetched ahead in its last stay, no use seen
  static constexpr uint64_t kQueued = 1u << 8;         // has an entry in a queue of a policy
  static constexpr uint64_t kSealed = 1u << 9;         // the program removed read permission: must not be near
  static constexpr uint64_t kWriteFollows = 1u << 10;  // was fetched for a read and then written, in its last stay
  static constexpr unsigned kPriorityShift = 11;       // 2 bits, set by hints
  static constexpr uint64_t kUpgrading = 1u << 13;     // a thread lifts the write protection, and owns the page
  static constexpr uint64_t kObjects = 1u << 14;       // holds far objects: evictors call the PageObserver
  static constexpr uint64_t kObjectPath = 1u << 15;    // fetched object by object (Atlas): no window includes the page
  static constexpr unsigned kPinShift = 16;            // 16 bits: system calls in progress that use the page
  static constexpr uint64_t kPinOne = uint64_t{1} << kPinShift;
  static constexpr uint64_t kPinMask = uint64_t{0xffff} << kPinShift;
  static constexpr unsigned kEpochShift = 32;  // 16 bits: Frames::epoch() when the page was evicted
  static constexpr uint64_t kEpochMask = uint64_t{0xffff} << kEpochShift;
  // 14 bits: in kFetching the thread slot of the fetcher; in kEvicting see RangeOps::own; near and far pages have flags
  // of the policies there.
  static constexpr unsigned kOwnerShift = 48;
  static constexpr uint64_t kMain = uint64_t{1} << kOwnerShift;  // entered the main queue of 2q in its last stay
  static constexpr uint64_t kHuge = kMain << 1;  // of a near page: an entry of the HugeQueue names its huge page
  static constexpr uint64_t kOwners = uint64_t{1} << 14;
  static constexpr uint64_t kOwnerMask = (kOwners - 1) << kOwnerShift;
  static constexpr uint64_t kFreed = uint64_t{1} << 62;  // near or evicting: freed by the program, its content is lost
  static constexpr uint64_t kForeign = uint64_t{1} << 63;  // unmapped: a file or near memory may be at its address

  constexpr PageWord() = default;
  constexpr explicit PageWord(uint64_t bits) : bits_(bits) {}
  constexpr uint64_t bits() const { return bits_; }

  constexpr PageState state() const { return static_cast<PageState>(bits_ & kStateMask); }
  constexpr bool is(PageState s) const { return state() == s; }
  constexpr bool has(uint64_t flags) const { return (bits_ & flags) == flags; }
  constexpr bool is_foreign() const { return has(kForeign); }
  // Belongs to no allocation, although it may be mapped still.
  constexpr bool is_free() const { return is(PageState::kUnmapped) || (is(PageState::kNear) && has(kFreed)); }
  constexpr uint64_t pins() const { return (bits_ & kPinMask) >> kPinShift; }
  constexpr uint16_t epoch() const { return static_cast<uint16_t>(bits_ >> kEpochShift); }
  constexpr unsigned priority() const { return (bits_ >> kPriorityShift) & 3; }
  constexpr uint16_t owner() const { return static_cast<uint16_t>((bits_ & kOwnerMask) >> kOwnerShift); }

  // Mapped, and a write succeeds without a fault unless the page is being upgraded.
  constexpr bool writable() const {
    return (bits_ & (kStateMask | kDirty | kCow)) == (uint64_t(PageState::kNear) | kDirty);
  }

  constexpr PageWord with_state(PageState s) const {
    return PageWord((bits_ & ~kStateMask) | static_cast<uint64_t>(s));
  }
  constexpr PageWord with(uint64_t flags) const { return PageWord(bits_ | flags); }
  constexpr PageWord without(uint64_t flags) const { return PageWord(bits_ & ~flags); }
  // What is left of the word when the content is dropped: what system calls and policies in progress rely on.
  constexpr PageWord without_content() const { return PageWord(bits_ & (kPinMask | kQueued)); }
  constexpr PageWord with_epoch(uint16_t e) const {
    return PageWord((bits_ & ~kEpochMask) | (static_cast<uint64_t>(e) << kEpochShift));
  }
  constexpr PageWord with_owner(uint16_t slot) const {
    return PageWord((bits_ & ~kOwnerMask) | (static_cast<uint64_t>(slot) << kOwnerShift));
  }

  // False for combinations that no interleaving produces.
  constexpr bool is_valid() const {
    PageState s = state();
    if (s > PageState::kEvicting) return false;
    if (has(kForeign) && s != PageState::kUnmapped) return false;
    if (has(kFreed) && s != PageState::kNear && s != PageState::kEvicting) return false;
    if (has(kSealed) && (s == PageState::kUnmapped || s == PageState::kFetching || s == PageState::kNear)) return false;
    if (s == PageState::kFar) return has(kStored) && (bits_ & (kDirty | kCow | kUpgrading)) == 0;
    if (s == PageState::kUntouched || s == PageState::kUnmapped)
      return (bits_ & (kDirty | kStored | kCow | kUpgrading)) == 0;
    if (s == PageState::kNear) return !has(kFreed) || (has(kDirty) && !has(kStored));
    return (bits_ & kUpgrading) == 0;
  }

  // Whether one compare-and-swap may change this word to `next`: the transitions of docs/internals/page_states.md.
  // Flags that are only advice may change in any state.
  constexpr bool may_become(PageWord next) const {
    if (!is_valid() || !next.is_valid()) return false;
    bool lost_write = has(kDirty) && !next.has(kDirty) && !is(PageState::kEvicting);
    if (lost_write) return false;
    if (state() == next.state()) return !next.has(kUpgrading) || is(PageState::kNear);
    switch (state()) {
      case PageState::kUnmapped:
        return next.is(PageState::kUntouched);
      case PageState::kUntouched:
      case PageState::kFar:
        return (next.is(PageState::kFetching) && !has(kSealed)) || next.is(PageState::kEvicting);
      case PageState::kFetching:
        return next.is(PageState::kNear) || next.is(PageState::kFar) || next.is(PageState::kUntouched);
      case PageState::kNear:
        return next.is(PageState::kEvicting) && !has(kUpgrading);
      case PageState::kEvicting:
        return !next.is(PageState::kFetching);
    }
    return false;
  }

 private:
  uint64_t bits_ = 0;
};

static_assert(sizeof(PageWord) == 8);
static_assert((PageWord::kPinMask & PageWord::kEpochMask) == 0 && (PageWord::kEpochMask & PageWord::kOwnerMask) == 0);
static_assert(PageWord::kOwnerMask < PageWord::kFreed && PageWord::kFreed < PageWord::kForeign);
static_assert(static_cast<uint64_t>(PageState::kEvicting) <= PageWord::kStateMask);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The word of one page in the table.
class AtomicPageWord {
 public:
  PageWord load() const { return PageWord(bits_.load(std::memory_order_acquire)); }
  bool try_change(PageWord& expected, PageWord desired) {
    FARSIDE_DCHECK(expected.may_become(desired));
    uint64_t bits = expected.bits();
    bool changed =
        bits_.compare_exchange_strong(bits, desired.bits(), std::memory_order_seq_cst, std::memory_order_acquire);
    expected = PageWord(bits);
    return changed;
  }
  PageWord set(uint64_t flags) {
    PageWord old(bits_.fetch_or(flags, std::memory_order_acq_rel));
    FARSIDE_DCHECK(old.may_become(old.with(flags)));
    return old;
  }
  PageWord clear(uint64_t flags) {
    PageWord old(bits_.fetch_and(~flags, std::memory_order_acq_rel));
    FARSIDE_DCHECK(old.may_become(old.without(flags)));
    return old;
  }
  void unpin() {
    [[maybe_unused]] PageWord old(bits_.fetch_sub(PageWord::kPinOne, std::memory_order_acq_rel));
    FARSIDE_DCHECK(old.pins() > 0);
  }
  // For tests and simulations, which do not follow the transitions.
  void force(PageWord word) { bits_.store(word.bits(), std::memory_order_release); }

  // Applies change(word) until the swap succeeds. For the owner of a page: no other thread changes its state, but
  // others may set flags meanwhile.
  template <typename Change>
  PageWord update(Change change) {
    PageWord old = load();
    while (!try_change(old, change(old))) {}
    return old;
  }

 private:
  std::atomic<uint64_t> bits_{0};
};
static_assert(sizeof(AtomicPageWord) == 8);

}  // namespace farside::pager
