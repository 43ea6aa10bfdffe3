#include "transport/file/xts.h"

#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/log.h"

namespace farside::transport {

#if defined(__x86_64__)

namespace {

#define FARSIDE_AES __attribute__((target("aes,sse4.1")))

constexpr unsigned kRounds = 14;
constexpr size_t kBlock = 16, kLanes = 8;  // blocks that are computed at the same time, since a round has a latency

// One step of the key schedule of FIPS 197 5.2: `assist` is the transformed last word of the previous round key.
FARSIDE_AES __m128i next_round_key(__m128i before, __m128i assist) {
  before = _mm_xor_si128(before, _mm_slli_si128(before, 4));
  before = _mm_xor_si128(before, _mm_slli_si128(before, 8));
  return _mm_xor_si128(before, assist);
}

template <int kConstant>
FARSIDE_AES void add_pair(__m128i* keys, unsigned at) {
  keys[at] = next_round_key(keys[at - 2], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(keys[at - 1], kConstant), 0xff));
  if (at == kRounds) return;
  keys[at + 1] = next_round_key(keys[at - 1], _mm_shuffle_epi32(_mm_aeskeygenassist_si128(keys[at], 0), 0xaa));
}

FARSIDE_AES void expand(const uint8_t* key, uint8_t* out) {
  __m128i keys[kRounds + 1];
  keys[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  keys[1] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key + kBlock));
  add_pair<0x01>(keys, 2);
  add_pair<0x02>(keys, 4);
  add_pair<0x04>(keys, 6);
  add_pair<0x08>(keys, 8);
  add_pair<0x10>(keys, 10);
  add_pair<0x20>(keys, 12);
  add_pair<0x40>(keys, 14);
  memcpy(out, keys, sizeof keys);
}

FARSIDE_AES void invert(const uint8_t* encrypt, uint8_t* decrypt) {
  auto* from = reinterpret_cast<const __m128i*>(encrypt);
  auto* to = reinterpret_cast<__m128i*>(decrypt);
  to[0] = from[kRounds];
  for (unsigned i = 1; i < kRounds; i++) to[i] = _mm_aesimc_si128(from[kRounds - i]);
  to[kRounds] = from[0];
}

FARSIDE_AES __m128i first_tweak(const uint8_t* keys, uint64_t unit) {
  auto* k = reinterpret_cast<const __m128i*>(keys);
  __m128i t = _mm_xor_si128(_mm_set_epi64x(0, static_cast<long long>(unit)), k[0]);
  for (unsigned i = 1; i < kRounds; i++) t = _mm_aesenc_si128(t, k[i]);
  return _mm_aesenclast_si128(t, k[kRounds]);
}

// The product with x in the field of 2^128 elements that XTS uses.
FARSIDE_AES __m128i next_tweak(__m128i t) {
  __m128i carries = _mm_shuffle_epi32(_mm_srai_epi32(t, 31), 0x13);
  return _mm_xor_si128(_mm_add_epi64(t, t), _mm_and_si128(carries, _mm_set_epi32(0, 1, 0, 0x87)));
}

template <bool kEncrypt>
FARSIDE_AES void run(const uint8_t* keys, __m128i tweak, const std::byte* from, std::byte* to, size_t bytes) {
  auto* k = reinterpret_cast<const __m128i*>(keys);
  auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  for (; bytes > 0; bytes -= kLanes * kBlock, in += kLanes, out += kLanes) {
    __m128i tweaks[kLanes], block[kLanes];
    for (size_t i = 0; i < kLanes; i++, tweak = next_tweak(tweak)) tweaks[i] = tweak;
    for (size_t i = 0; i < kLanes; i++) block[i] = _mm_xor_si128(_mm_loadu_si128(in + i), tweaks[i]);
    for (size_t i = 0; i < kLanes; i++) block[i] = _mm_xor_si128(block[i], k[0]);
    for (unsigned round = 1; round < kRounds; round++) {
      for (size_t i = 0; i < kLanes; i++) {
        block[i] = kEncrypt ? _mm_aesenc_si128(block[i], k[round]) : _mm_aesdec_si128(block[i], k[round]);
      }
    }
    for (size_t i = 0; i < kLanes; i++) {
      __m128i last = kEncrypt ? _mm_aesenclast_si128(block[i], k[kRounds]) : _mm_aesdeclast_si128(block[i], k[kRounds]);
      _mm_storeu_si128(out + i, _mm_xor_si128(last, tweaks[i]));
    }
  }
}

}  // namespace

bool XtsCipher::is_supported() { return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1"); }

XtsCipher::XtsCipher(const uint8_t* key) {
  expand(key, encrypt_);
  invert(encrypt_, decrypt_);
  expand(key + kKeyBytes / 2, tweak_);
}

void XtsCipher::encrypt(uint64_t unit, const std::byte* from, std::byte* to, size_t bytes) const {
  FARSIDE_DCHECK(bytes % (kLanes * kBlock) == 0);
  run<true>(encrypt_, first_tweak(tweak_, unit), from, to, bytes);
}

void XtsCipher::decrypt(uint64_t unit, std::byte* data, size_t bytes) const {
  FARSIDE_DCHECK(bytes % (kLanes * kBlock) == 0);
  run<false>(decrypt_, first_tweak(tweak_, unit), data, data, bytes);
}

#else

bool XtsCipher::is_supported() { return false; }
XtsCipher::XtsCipher(const uint8_t*) {}
void XtsCipher::encrypt(uint64_t, const std::byte*, std::byte*, size_t) const { die("internal error: no AES"); }
void XtsCipher::decrypt(uint64_t, std::byte*, size_t) const { die("internal error: no AES"); }

#endif

}  // namespace farside::transport
