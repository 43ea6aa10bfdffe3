// The array of page words, one for each page of far space. It is reserved as a whole and populated by the kernel when
// touched, so a table for 256 GiB uses only memory for its touched part (8 bytes a page, 0.2 %).
//
// Most pages are at their place in the far space, which is one range of addresses. A program may also want far memory
// at addresses of its own choice. Page numbers are lent for those, in windows of 2 MiB: while a window is lent, its
// pages are at another address, and the addresses in the far space are not used. Both directions are one array access.
//   address / 2 MiB -> windows_ -> number of the lent window + 1, or 0
//   page / 512      -> places_  -> address of the window, or 0: at its place in the far space
#pragma once
#include <atomic>

#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

class PageTable {
 public:
  static constexpr uint64_t kWindowBytes = 2 * kMiB;
  static constexpr uint64_t kWindowPages = kWindowBytes / kPageSize;

  PageTable(std::byte* space, uint64_t bytes)
      : space_(space),
        pages_(bytes / kPageSize),
        words_(static_cast<AtomicPageWord*>(os::map_near(pages_ * sizeof(AtomicPageWord)))),
        windows_(static_cast<std::atomic<uint32_t>*>(os::map_near(kWindows * sizeof(uint32_t)))),
        places_(static_cast<std::atomic<uint64_t>*>(os::map_near(places_bytes()))) {
    if (!words_ || !windows_ || !places_)
      die("cannot reserve a page table of {} bytes; lower --space or raise the limit on virtual memory", pages_ * 8);
  }
  ~PageTable() {
    os::unmap(words_, pages_ * sizeof(AtomicPageWord));
    os::unmap(windows_, kWindows * sizeof(uint32_t));
    os::unmap(places_, places_bytes());
  }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  AtomicPageWord& operator[](PageIndex page) { return words_[page]; }
  uint64_t pages() const { return pages_; }

  // True if a page word belongs to the address. It may still be foreign: not far memory.
  bool contains(uint64_t address) const { return in_space(address) || (any_lent() && window_at(address) != 0); }
  bool in_space(uint64_t address) const { return address - reinterpret_cast<uint64_t>(space_) < pages_ * kPageSize; }
  // The address must be contained.
  PageIndex index_of(uint64_t address) const {
    uint64_t offset = address - reinterpret_cast<uint64_t>(space_);
    if (offset < pages_ * kPageSize) return static_cast<PageIndex>(offset / kPageSize);
    uint32_t window = window_at(address);
    FARSIDE_DCHECK(window != 0);
    return static_cast<PageIndex>((window - 1) * kWindowPages + address / kPageSize % kWindowPages);
  }
  std::byte* address_of(PageIndex page) const {
    uint64_t place = any_lent() ? places_[page / kWindowPages].load(std::memory_order_acquire) : 0;
    if (place != 0) return reinterpret_cast<std::byte*>(place + page % kWindowPages * kPageSize);
    return space_ + static_cast<uint64_t>(page) * kPageSize;
  }
  // Whether the next page number is also at the next address.
  bool is_followed(PageIndex page) const {
    if (!any_lent() || (page + 1) % kWindowPages != 0) return true;
    return page + 1 < pages_ && address_of(page + 1) == address_of(page) + kPageSize;
  }
  static uint64_t far_of(PageIndex page) { return static_cast<uint64_t>(page) * kPageSize; }  // direct mapping

  // Lends the windows from `first` (its first page) on, one after the other, to the addresses from `place` on. Their
  // pages become foreign. For good: a reader that holds an outdated address must find a page word. Not thread-safe.
  void lend(PageIndex first, uint64_t place, uint64_t windows) {
    FARSIDE_CHECK(first % kWindowPages == 0 && is_aligned(place, kWindowBytes) && !in_space(place));
    for (uint64_t i = 0; i < windows; i++) {
      auto page = static_cast<PageIndex>(first + i * kWindowPages);
      uint64_t at = place + i * kWindowBytes;
      FARSIDE_CHECK(window_at(at) == 0 && at < kAddressEnd);
      for (PageIndex p = page; p < page + kWindowPages; p++) words_[p].set(PageWord::kForeign);
      places_[page / kWindowPages].store(at, std::memory_order_release);
      windows_[at / kWindowBytes].store(static_cast<uint32_t>(page / kWindowPages + 1), std::memory_order_release);
    }
    any_lent_.store(true, std::memory_order_release);
  }

 private:
  static constexpr uint64_t kAddressEnd = uint64_t{1} << 47;  // of user space
  static constexpr uint64_t kWindows = kAddressEnd / kWindowBytes;

  bool any_lent() const { return any_lent_.load(std::memory_order_acquire); }
  uint32_t window_at(uint64_t address) const {
    return address < kAddressEnd ? windows_[address / kWindowBytes].load(std::memory_order_acquire) : 0;
  }
  uint64_t places_bytes() const { return (pages_ / kWindowPages + 1) * sizeof(uint64_t); }

  std::byte* space_;
  uint64_t pages_;
  AtomicPageWord* words_;
  std::atomic<uint32_t>* windows_;
  std::atomic<uint64_t>* places_;
  std::atomic<bool> any_lent_{false};
};

}  // namespace farside::pager
