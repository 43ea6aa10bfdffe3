#include "pager/huge/content_sums.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bits.h"
#include "base/random.h"

namespace farside::pager {

using SumFunction = uint64_t (*)(const void* page, const void* secret);
#if defined(__x86_64__)
uint64_t sum_of_page_avx2(const void* page, const void* secret);  // content_sums_avx2.cc
#endif

namespace {

constexpr size_t kSecretBytes = XXH3_SECRET_DEFAULT_SIZE;

uint64_t sum_of_page(const void* page, const void* secret) {
  return XXH3_64bits_withSecret(page, kPageSize, secret, kSecretBytes);
}

alignas(kCacheLine) std::byte s_secret[kSecretBytes];
SumFunction s_sum = nullptr;

}  // namespace

void ContentSums::init() {
  if (s_sum) return;
  fill_random(s_secret, sizeof s_secret);
  s_sum = sum_of_page;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) s_sum = sum_of_page_avx2;
#endif
}

uint64_t ContentSums::of(const std::byte* page) { return s_sum(page, s_secret); }

bool is_zero_page(const std::byte* page) {
  uint64_t first;
  memcpy(&first, page, sizeof first);
  return first == 0 && memcmp(page, page + sizeof first, kPageSize - sizeof first) == 0;
}

}  // namespace farside::pager
