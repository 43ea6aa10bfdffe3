#include "wire/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace farside::wire {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // bit-reversed

constexpr std::array<uint32_t, 256> make_byte_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t v = i;
    for (int bit = 0; bit < 8; bit++) v = (v >> 1) ^ ((v & 1) ? kPolynomial : 0);
    table[i] = v;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kByteTable = make_byte_table();

uint32_t update_portable(uint32_t state, const unsigned char* at, size_t bytes) {
  for (; bytes > 0; at++, bytes--) state = kByteTable[(state ^ *at) & 0xff] ^ (state >> 8);
  return state;
}

#if defined(__x86_64__)

// The crc32 instruction has a latency of three cycles and a throughput of one per cycle, so three stretches are
// computed at the same time. A page has three stretches and 16 bytes.
constexpr size_t kStretch = 1360;

// Appending zeros is a linear function of the register's bits, so the register after kStretch zero bytes is the
// exclusive or of four table entries.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;
constexpr ShiftTable make_shift_table() {
  std::array<uint32_t, 32> basis{};
  for (int bit = 0; bit < 32; bit++) {
    uint32_t v = uint32_t{1} << bit;
    for (size_t i = 0; i < kStretch; i++) v = kByteTable[v & 0xff] ^ (v >> 8);
    basis[bit] = v;
  }
  ShiftTable table{};
  for (int byte = 0; byte < 4; byte++) {
    for (uint32_t value = 0; value < 256; value++) {
      for (int bit = 0; bit < 8; bit++) {
        if (value >> bit & 1) table[byte][value] ^= basis[byte * 8 + bit];
      }
    }
  }
  return table;
}
constexpr ShiftTable kShift = make_shift_table();

uint32_t shift_stretch(uint32_t v) {
  return kShift[0][v & 0xff] ^ kShift[1][v >> 8 & 0xff] ^ kShift[2][v >> 16 & 0xff] ^ kShift[3][v >> 24];
}

uint64_t load(const unsigned char* at) {
  uint64_t v;
  memcpy(&v, at, sizeof v);
  return v;
}

__attribute__((target("sse4.2"))) uint32_t update_sse42(uint32_t state, const unsigned char* at, size_t bytes) {
  for (; bytes >= 3 * kStretch; at += 3 * kStretch, bytes -= 3 * kStretch) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      a = _mm_crc32_u64(a, load(at + i));
      b = _mm_crc32_u64(b, load(at + kStretch + i));
      c = _mm_crc32_u64(c, load(at + 2 * kStretch + i));
    }
    uint32_t ab = shift_stretch(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    state = shift_stretch(ab) ^ static_cast<uint32_t>(c);
  }
  uint64_t wide = state;
  for (; bytes >= 8; at += 8, bytes -= 8) wide = _mm_crc32_u64(wide, load(at));
  state = static_cast<uint32_t>(wide);
  for (; bytes > 0; at++, bytes--) state = _mm_crc32_u8(state, *at);
  return state;
}

// Folding: 128 bits of the message, as a polynomial, are replaced by a remainder at a place 128 bits or more behind.
// x^n mod P, bit-reversed, in the form in which a carry-less product of bit-reversed factors takes it.
constexpr uint64_t fold_constant(unsigned n) {
  uint32_t v = 0x80000000;
  for (unsigned i = 0; i < n; i++) v = (v >> 1) ^ ((v & 1) ? kPolynomial : 0);
  return uint64_t{v} << 1;
}

// For the lower and the upper 64 bits of a part that is folded over `bits`.
struct FoldConstants {
  uint64_t low, high;
};
constexpr FoldConstants fold_over(unsigned bits) { return {fold_constant(bits + 32), fold_constant(bits - 32)}; }
constexpr FoldConstants kFold2048 = fold_over(2048), kFold512 = fold_over(512), kFold384 = fold_over(384),
                        kFold256 = fold_over(256), kFold128 = fold_over(128);

#define FARSIDE_WIDE __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq,pclmul,sse4.2")))

FARSIDE_WIDE inline __m512i fold_wide(__m512i part, __m512i constants, __m512i next) {
  __m512i low = _mm512_clmulepi64_epi128(part, constants, 0x00), high = _mm512_clmulepi64_epi128(part, constants, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // the exclusive or of all three
}
FARSIDE_WIDE inline __m512i wide(FoldConstants c) {
  auto low = static_cast<long long>(c.low), high = static_cast<long long>(c.high);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}
FARSIDE_WIDE inline __m128i fold(__m128i part, FoldConstants c) {
  __m128i constants = _mm_set_epi64x(static_cast<long long>(c.high), static_cast<long long>(c.low));
  return _mm_xor_si128(_mm_clmulepi64_si128(part, constants, 0x00), _mm_clmulepi64_si128(part, constants, 0x11));
}

constexpr size_t kWideBlock = 4 * 64;  // four registers, which are folded independently
constexpr size_t kMinWide = 2 * kWideBlock;

// Of processors with carry-less products of 512 bits: four times as fast as the crc32 instruction.
FARSIDE_WIDE uint32_t update_wide(uint32_t state, const unsigned char* at, size_t bytes) {
  __m512i part[4];
  for (int i = 0; i < 4; i++) part[i] = _mm512_loadu_si512(at + 64 * i);
  part[0] = _mm512_xor_si512(part[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  at += kWideBlock;
  bytes -= kWideBlock;
  const __m512i over_block = wide(kFold2048), over_register = wide(kFold512);
  for (; bytes >= kWideBlock; at += kWideBlock, bytes -= kWideBlock) {
    for (int i = 0; i < 4; i++) part[i] = fold_wide(part[i], over_block, _mm512_loadu_si512(at + 64 * i));
  }
  __m512i all = part[0];
  for (int i = 1; i < 4; i++) all = fold_wide(all, over_register, part[i]);
  __m128i quarters[4];
  _mm512_storeu_si512(quarters, all);
  __m128i last = fold(quarters[0], kFold384);
  last = _mm_xor_si128(last, fold(quarters[1], kFold256));
  last = _mm_xor_si128(last, fold(quarters[2], kFold128));
  last = _mm_xor_si128(last, quarters[3]);
  uint64_t wide_state = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_extract_epi64(last, 0)));
  wide_state = _mm_crc32_u64(wide_state, static_cast<uint64_t>(_mm_extract_epi64(last, 1)));
  return update_sse42(static_cast<uint32_t>(wide_state), at, bytes);
}

#undef FARSIDE_WIDE

bool has_wide() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
}

// False until the constructors of this file have run; the portable form has the same result until then.
const bool g_has_instruction = __builtin_cpu_supports("sse4.2");
const bool g_has_wide = g_has_instruction && has_wide();

#endif

}  // namespace

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
#if defined(__x86_64__)
  if (g_has_wide && bytes >= kMinWide) return ~update_wide(~crc, static_cast<const unsigned char*>(data), bytes);
  if (g_has_instruction) return ~update_sse42(~crc, static_cast<const unsigned char*>(data), bytes);
#endif
  return crc32c_portable(crc, data, bytes);
}

uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes) {
  return ~update_portable(~crc, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace farside::wire
