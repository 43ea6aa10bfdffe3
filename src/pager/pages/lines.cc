#include "pager/pages/lines.h"

#include <atomic>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace farside::pager {
namespace {

using Compare = uint64_t (*)(const std::byte*, const std::byte*, const std::byte*);

void prefetch_line(const std::byte* page, unsigned line) { __builtin_prefetch(page + line * kCacheLine, 0, 2); }

#ifdef __x86_64__
__attribute__((target("avx2"))) uint64_t changed_lines_avx2(const std::byte* now, const std::byte* before,
                                                            const std::byte* next) {
  uint64_t lines = 0;
  for (unsigned line = 0; line < kPageLines; line++) {
    prefetch_line(next, line);
    auto* a = reinterpret_cast<const __m256i*>(now + line * kCacheLine);
    auto* b = reinterpret_cast<const __m256i*>(before + line * kCacheLine);
    __m256i low = _mm256_xor_si256(_mm256_load_si256(a), _mm256_load_si256(b));
    __m256i high = _mm256_xor_si256(_mm256_load_si256(a + 1), _mm256_load_si256(b + 1));
    __m256i any = _mm256_or_si256(low, high);
    lines |= static_cast<uint64_t>(_mm256_testz_si256(any, any) == 0) << line;
  }
  return lines;
}

__attribute__((target("avx512f"))) uint64_t changed_lines_avx512(const std::byte* now, const std::byte* before,
                                                                 const std::byte* next) {
  uint64_t lines = 0;
  for (unsigned line = 0; line < kPageLines; line++) {
    prefetch_line(next, line);
    __m512i a = _mm512_load_si512(now + line * kCacheLine), b = _mm512_load_si512(before + line * kCacheLine);
    lines |= static_cast<uint64_t>(_mm512_cmpneq_epi64_mask(a, b) != 0) << line;
  }
  return lines;
}
#endif

Compare choose() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return changed_lines_avx512;
  if (__builtin_cpu_supports("avx2")) return changed_lines_avx2;
#endif
  return changed_lines_portable;
}

}  // namespace

uint64_t changed_lines_portable(const std::byte* now, const std::byte* before, const std::byte* next) {
  uint64_t lines = 0;
  for (unsigned line = 0; line < kPageLines; line++) {
    prefetch_line(next, line);
    uint64_t any = 0;
    for (unsigned word = 0; word < kCacheLine / 8; word++) {
      uint64_t a, b;
      memcpy(&a, now + line * kCacheLine + word * 8, 8);
      memcpy(&b, before + line * kCacheLine + word * 8, 8);
      any |= a ^ b;
    }
    lines |= static_cast<uint64_t>(any != 0) << line;
  }
  return lines;
}

uint64_t changed_lines(const std::byte* now, const std::byte* before, const std::byte* next) {
  static std::atomic<Compare> chosen{nullptr};  // threads that choose at the same time choose the same
  Compare compare = chosen.load(std::memory_order_relaxed);
  if (!compare) chosen.store(compare = choose(), std::memory_order_relaxed);
  return compare(now, before, next);
}

}  // namespace farside::pager
