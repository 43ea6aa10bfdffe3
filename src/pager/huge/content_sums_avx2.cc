// The sum of a page by AVX2 instructions: twice as fast. Compiled with -mavx2, so it includes nothing whose inline
// functions other files use.
#if defined(__x86_64__)
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace farside::pager {

uint64_t sum_of_page_avx2(const void* page, const void* secret);
uint64_t sum_of_page_avx2(const void* page, const void* secret) {
  return XXH3_64bits_withSecret(page, 4096, secret, XXH3_SECRET_DEFAULT_SIZE);
}

}  // namespace farside::pager
#endif
