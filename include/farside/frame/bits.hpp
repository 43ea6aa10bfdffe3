// Bitmaps of the rows of one batch. Programs do not name these.
#ifndef FARSIDE_FRAME_BITS_HPP
#define FARSIDE_FRAME_BITS_HPP

#include <farside/frame/plan.hpp>

#include <array>

namespace farside::frame {

constexpr int64_t kBatchWords = kBatchRows / 64;

struct row_bits {
  std::array<uint64_t, kBatchWords> words;

  bool has(size_t row) const { return words[row / 64] >> (row % 64) & 1; }
};

// The first n bits of a batch are set, the others not.
inline row_bits first_rows(int64_t n) {
  row_bits made;
  for (int64_t w = 0; w < kBatchWords; w++) {
    int64_t left = n - w * 64;
    made.words[static_cast<size_t>(w)] = left >= 64 ? ~uint64_t{0} : left <= 0 ? 0 : (uint64_t{1} << left) - 1;
  }
  return made;
}

constexpr size_t words_of(int64_t rows) { return static_cast<size_t>((rows + 63) / 64); }

// Removes from `bits` the rows that are null in a column; `begin` is the batch's first row.
inline void remove_nulls(row_bits& bits, const column_view& v, int64_t begin, int64_t n) {
  if (!v.validity) return;
  for (size_t w = 0; w < words_of(n); w++) bits.words[w] &= word_at(v.validity, begin + static_cast<int64_t>(w) * 64);
}

// std::popcount is a function call for most processors that a program may be compiled for.
inline int64_t count_of(const row_bits& bits) {
  int64_t count = 0;
  for (uint64_t word : bits.words) count += word == ~uint64_t{0} ? 64 : std::popcount(word);
  return count;
}

// Calls f(i) for each set bit, in order. The loop over a full word has a constant length, so that it can be vectorized.
template <typename F>
void for_each_set(uint64_t word, size_t base, F f) {
  if (word == ~uint64_t{0}) {
    for (size_t i = 0; i < 64; i++) f(base + i);
    return;
  }
  for (; word; word &= word - 1) f(base + static_cast<size_t>(std::countr_zero(word)));
}
template <typename F>
void for_each_set(const row_bits& bits, F f) {
  for (size_t w = 0; w < bits.words.size(); w++) for_each_set(bits.words[w], w * 64, f);
}

// As for_each_set, where f is compiled for each i % 4, which is worth it for short functions.
template <typename F>
void for_each_set_of_four(const row_bits& bits, F f) {
  for (size_t w = 0; w < bits.words.size(); w++) {
    size_t first = w * 64;
    if (bits.words[w] != ~uint64_t{0}) {
      for_each_set(bits.words[w], first, f);
    } else {
      for (size_t i = first; i < first + 64; i += 4) f(i), f(i + 1), f(i + 2), f(i + 3);
    }
  }
}

// Two values that are computed at once. Every 64-bit processor can, whatever options a program is compiled with.
typedef double two_reals __attribute__((vector_size(16)));
typedef uint64_t two_integers __attribute__((vector_size(16)));
typedef int64_t two_masks __attribute__((vector_size(16)));  // -1: true, 0: false

template <typename T>
two_reals two_at(const T* values) {
  return two_reals{static_cast<double>(values[0]), static_cast<double>(values[1])};
}

// The bits of rows [0, n), n <= kBatchRows, and undefined ones up to a multiple of 64. f(i): the masks of two rows, of
// which i is the first.
template <typename F>
void collect_masks(uint64_t* words, int64_t n, F f) {
  for (size_t first = 0; first < static_cast<size_t>(n); first += 64) {
    two_integers all = {}, bit = {1, 2};
    for (size_t i = 0; i < 64; i += 2, bit <<= 2) all |= std::bit_cast<two_integers>(f(first + i)) & bit;
    words[first / 64] = all[0] | all[1];
  }
}

// The bits of f(i) for i in [0, n). First a byte for each, in a loop of constant length; then eight bytes become eight
// bits by a multiplication.
template <typename F>
void collect_bits(uint64_t* words, int64_t n, F f) {
  std::array<uint8_t, 64> is = {};
  for (int64_t first = 0; first < n; first += 64) {
    if (n - first >= 64) {
      for (int64_t i = 0; i < 64; i++) is[static_cast<size_t>(i)] = f(first + i);
    } else {
      for (int64_t i = 0; i < n - first; i++) is[static_cast<size_t>(i)] = f(first + i);
    }
    uint64_t word = 0;
    for (int64_t byte = 0; byte < 8; byte++)
      word |= (word_at(is.data(), byte * 64) * 0x0102040810204080 >> 56) << (byte * 8);
    words[first / 64] = word;
  }
}

}  // namespace farside::frame
#endif
