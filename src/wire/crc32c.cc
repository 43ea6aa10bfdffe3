#include "wire/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
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

// False until the constructors of this file have run; the portable form has the same result until then.
const bool g_has_instruction = __builtin_cpu_supports("sse4.2");

#endif

}  // namespace

uint32_t crc32c(uint32_t crc, const void* data, size_t bytes) {
#if defined(__x86_64__)
  if (g_has_instruction) return ~update_sse42(~crc, static_cast<const unsigned char*>(data), bytes);
#endif
  return crc32c_portable(crc, data, bytes);
}

uint32_t crc32c_portable(uint32_t crc, const void* data, size_t bytes) {
  return ~update_portable(~crc, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace farside::wire
