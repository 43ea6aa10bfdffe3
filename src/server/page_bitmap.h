// One bit per page of a region, initially 0. Mapped without reservation: it uses memory only where bits were set. Not
// thread-safe.
#pragma once
#include <sys/mman.h>

#include <bit>
#include <cstdint>
#include <new>

namespace farside::server {

class PageBitmap {
 public:
  explicit PageBitmap(uint64_t pages) : words_((pages + 63) / 64) {
    void* memory =
        mmap(nullptr, words_ * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    bits_ = static_cast<uint64_t*>(memory);
  }
  ~PageBitmap() { munmap(bits_, words_ * 8); }
  PageBitmap(const PageBitmap&) = delete;
  PageBitmap& operator=(const PageBitmap&) = delete;

  bool test(uint64_t page) const { return bits_[page / 64] >> (page % 64) & 1; }
  void set(uint64_t page) { bits_[page / 64] |= uint64_t{1} << (page % 64); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (uint64_t w = 0; w < words_; w++) {
      for (uint64_t rest = bits_[w]; rest != 0; rest &= rest - 1) {
        visit(w * 64 + static_cast<uint64_t>(std::countr_zero(rest)));
      }
    }
  }

 private:
  uint64_t words_;
  uint64_t* bits_;
};

}  // namespace farside::server
