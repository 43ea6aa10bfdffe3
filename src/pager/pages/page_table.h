// The array of page words, one for each page of far space. It is reserved as a whole and populated by the kernel when
// touched, so a table for 256 GiB uses only memory for its touched part (8 bytes a page, 0.2 %).
//
// The words of 2 MiB are a window. A window is *settled* from when a call of a function on a memory server has seen
// that all its pages are allocated, not owned, and equal to the server's copies, until one of its words changes to
// something else: a page becomes dirty, is claimed by a fetch, or is freed (docs/internals/offload.md). So calls look
// at few words. Each change of a word through the table is checked, which costs one load.
//
// Most pages are at their place in the far space, which is one range of addresses. A program may also want far memory
// at addresses of its own choice. Page numbers are lent for those, in windows of 2 MiB: while a window is lent, its
// pages are at another address, and the addresses in the far space are not used. Both directions are one array access.
//   address / 2 MiB -> windows_ -> number of the lent window + 1, or 0
//   page / 512      -> places_  -> address of the window, or 0: at its place in the far space
#pragma once
#include <algorithm>
#include <atomic>
#include <type_traits>

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
        settled_(static_cast<std::atomic<uint32_t>*>(os::map_near(settled_bytes()))),
        windows_(static_cast<std::atomic<uint32_t>*>(os::map_near(kWindows * sizeof(uint32_t)))),
        places_(static_cast<std::atomic<uint64_t>*>(os::map_near(places_bytes()))) {
    if (!words_ || !settled_ || !windows_ || !places_)
      die("cannot reserve a page table of {} bytes; lower --tune space or raise the limit on virtual memory",
          pages_ * 8);
  }
  ~PageTable() {
    os::unmap(words_, pages_ * sizeof(AtomicPageWord));
    os::unmap(settled_, settled_bytes());
    os::unmap(windows_, kWindows * sizeof(uint32_t));
    os::unmap(places_, places_bytes());
  }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  // The word of a page: as AtomicPageWord.
  class Entry {
   public:
    PageWord load() const { return word_->load(); }
    bool try_change(PageWord& expected, PageWord desired) {
      bool changed = word_->try_change(expected, desired);
      if (changed && unsettles(expected, desired)) table_->unsettle(page_);
      return changed;
    }
    PageWord set(uint64_t flags) {
      FARSIDE_DCHECK((flags & PageWord::kDirty) == 0);
      return word_->set(flags);
    }
    PageWord clear(uint64_t flags) { return word_->clear(flags); }
    void unpin() { word_->unpin(); }
    void force(PageWord word) { word_->force(word); }
    template <typename Change>
    PageWord update(Change change) {
      PageWord old = load();
      while (!try_change(old, change(old))) {}
      return old;
    }

   private:
    friend class PageTable;
    Entry(PageTable* table, PageIndex page) : table_(table), word_(&table->words_[page]), page_(page) {}
    static constexpr bool unsettles(PageWord old, PageWord now) {
      return (now.has(PageWord::kDirty) && !old.has(PageWord::kDirty)) || now.is(PageState::kFetching) ||
             now.is(PageState::kUnmapped);
    }
    PageTable* table_;
    AtomicPageWord* word_;
    PageIndex page_;
  };
  Entry operator[](PageIndex page) { return {this, page}; }
  // For readers.
  AtomicPageWord* word_at(PageIndex page) { return &words_[page]; }

  // ---- Settled windows. A call begins to settle a window that is not, looks at all its words, and ends with what it
  // has seen. It has no effect if a word changed meanwhile, or another call began. ----

  bool is_settled(PageIndex page) const { return settled_[page / kWindowPages].load() == kSettled; }
  uint32_t begin_settling(PageIndex page) {
    uint32_t ticket = next_ticket_.fetch_add(1, std::memory_order_relaxed) % (kSettled - 1) + 1;
    settled_[page / kWindowPages].store(ticket);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the words are read after it
    return ticket;
  }
  void end_settling(PageIndex page, uint32_t ticket) {
    settled_[page / kWindowPages].compare_exchange_strong(ticket, kSettled);
  }
  // After a word has changed, and before what it permits.
  void unsettle(PageIndex page) {
    std::atomic<uint32_t>& window = settled_[page / kWindowPages];
    if (window.load() != 0) window.store(0);
  }
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
  // The word of the page at a contained address.
  PageWord word(uint64_t address) { return word_at(index_of(address))->load(); }
  bool is_foreign(uint64_t address) { return word(address).is_foreign(); }
  // How many bytes from a contained address on have page words.
  uint64_t contained_bytes(uint64_t address, uint64_t bytes) const {
    if (in_space(address)) return std::min(bytes, reinterpret_cast<uint64_t>(space_) + pages_ * kPageSize - address);
    uint64_t reached = align_up(address + 1, kWindowBytes) - address;
    while (reached < bytes && contains(address + reached)) reached += kWindowBytes;
    return std::min(bytes, reached);
  }
  // Calls visit(address, first, count) for each part of a contained range, aligned to pages, whose pages have
  // successive numbers. In the far space that is all of it. A visit may return whether to continue; false: one did not.
  template <typename Visit>
  bool for_each_part(const std::byte* address, size_t bytes, Visit visit) const {
    auto at = reinterpret_cast<uint64_t>(address);
    for (uint64_t end = at + bytes; at < end;) {
      PageIndex first = index_of(at);
      uint64_t part = std::min(end, in_space(at) ? end : align_up(at + 1, kWindowBytes));
      while (part < end && contains(part) && index_of(part) == first + (part - at) / kPageSize)
        part = std::min(end, part + kWindowBytes);
      uint64_t count = (part - at) / kPageSize;
      auto* begin = reinterpret_cast<std::byte*>(at);
      if constexpr (std::is_void_v<decltype(visit(begin, first, count))>) visit(begin, first, count);
      else if (!visit(begin, first, count)) return false;
      at = part;
    }
    return true;
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
  uint64_t settled_bytes() const { return (pages_ / kWindowPages + 1) * sizeof(uint32_t); }

  static constexpr uint32_t kSettled = ~uint32_t{0};
  AtomicPageWord* words_;
  std::atomic<uint32_t>* settled_;  // of each window: 0, the ticket of a call that looks at it, or kSettled
  std::atomic<uint32_t> next_ticket_{0};
  std::atomic<uint32_t>* windows_;
  std::atomic<uint64_t>* places_;
  std::atomic<bool> any_lent_{false};
};

}  // namespace farside::pager
