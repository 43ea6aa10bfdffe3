// The array of page words, one for each page of far space. It is reserved as a whole and populated by the kernel when
// touched, so a table for 256 GiB uses only memory for its touched part (8 bytes a page, 0.2 %).
#pragma once
#include "base/bits.h"
#include "base/log.h"
#include "base/os.h"
#include "pager/pages/page_word.h"

namespace farside::pager {

class PageTable {
 public:
  PageTable(std::byte* space, uint64_t bytes)
      : space_(space),
        pages_(bytes / kPageSize),
        words_(static_cast<AtomicPageWord*>(os::map_near(pages_ * sizeof(AtomicPageWord)))) {
    if (!words_)
      die("cannot reserve a page table of {} bytes; lower --space or raise the limit on virtual memory", pages_ * 8);
  }
  ~PageTable() { os::unmap(words_, pages_ * sizeof(AtomicPageWord)); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  AtomicPageWord& operator[](PageIndex page) { return words_[page]; }
  uint64_t pages() const { return pages_; }

  bool contains(uint64_t address) const { return address - reinterpret_cast<uint64_t>(space_) < pages_ * kPageSize; }
  PageIndex index_of(uint64_t address) const {
    return static_cast<PageIndex>((address - reinterpret_cast<uint64_t>(space_)) / kPageSize);
  }
  std::byte* address_of(PageIndex page) const { return space_ + static_cast<uint64_t>(page) * kPageSize; }
  static uint64_t far_of(PageIndex page) { return static_cast<uint64_t>(page) * kPageSize; }  // direct mapping

 private:
  std::byte* space_;
  uint64_t pages_;
  AtomicPageWord* words_;
};

}  // namespace farside::pager
