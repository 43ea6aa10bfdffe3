// Sums, counts, extremes and means of the rows that a condition selects. Programs do not name these; data_frame.hpp has
// the semantics.
#ifndef FARSIDE_FRAME_AGGREGATE_HPP
#define FARSIDE_FRAME_AGGREGATE_HPP

#include <farside/frame/evaluate.hpp>

namespace farside::frame {

__extension__ typedef __int128 int128;

// What was aggregated so far. Trivially copyable.
struct aggregate_state {
  int128 whole = 0;                 // the sum of integers, which 2^63 rows cannot overflow
  double real = 0, correction = 0;  // the sum of floating-point numbers, and what rounding took from it
  int64_t count = 0;
  uint64_t extreme = 0;  // wide_bits of the minimum or maximum, if count > 0

  // Neumaier's sum: its error does not grow with the number of rows.
  void add_real(double x) {
    double sum = real + x;
    if (std::isfinite(sum)) correction += std::abs(real) >= std::abs(x) ? (real - sum) + x : (x - sum) + real;
    real = sum;
  }
  template <typename T>
  void add(T value) {
    if constexpr (std::is_floating_point_v<T>) add_real(static_cast<double>(value));
    else whole += value;
  }
  // The caller adds to count later.
  template <typename T>
  void add_extreme(T value, bool is_minimum) {
    bool is_better = is_minimum ? ordered_bits(value) < ordered_bits(from_wide_bits<T>(extreme))
                                : ordered_bits(value) > ordered_bits(from_wide_bits<T>(extreme));
    if (count == 0 || is_better) extreme = wide_bits(value);
  }
};

// The values of one batch of an aggregate's input, as an array of their own type.
template <typename F>
void with_batch_values(const column_view& v, int64_t begin, int64_t n, F f) {
  if (v.id == type_id::boolean) {
    std::array<uint8_t, kBatchRows> truths;
    for (int64_t i = 0; i < n; i++) truths[static_cast<size_t>(i)] = v.bit(begin + i);
    return f(truths.data());
  }
  with_stored_type(v.id, [&](auto zero) { f(v.as<decltype(zero)>() + begin); });
}

// Folds the selected values of a batch into four lanes of type Lane, each in a variable of its own, so that it stays in
// a register and steps do not wait for each other. Which lane a row goes to follows from its place only, so that
// results are the same near and on a server. `at(i)`: the values of row i and, where Lane is a vector, the next;
// `masked(v, bits)`: v with `start` in place of the values whose bit is not set.
template <typename Lane, typename At, typename Masked, typename Step>
Lane fold_lanes(const row_bits& rows, Lane start, size_t width, At at, Masked masked, Step step) {
  Lane a = start, b = start, c = start, d = start;
  for (size_t w = 0; w < rows.words.size(); w++) {
    uint64_t word = rows.words[w];
    if (word == 0) continue;
    size_t first = w * 64, end = first + 64;
    if (word == ~uint64_t{0}) {
      for (size_t i = first; i < end; i += 4 * width) {
        a = step(a, at(i)), b = step(b, at(i + width));
        c = step(c, at(i + 2 * width)), d = step(d, at(i + 3 * width));
      }
    } else {
      for (size_t i = first; i < end; i += 4 * width, word >>= 4 * width) {
        a = step(a, masked(at(i), word)), b = step(b, masked(at(i + width), word >> width));
        c = step(c, masked(at(i + 2 * width), word >> 2 * width));
        d = step(d, masked(at(i + 3 * width), word >> 3 * width));
      }
    }
  }
  return step(step(a, b), step(c, d));
}
// step(Lane, Lane). Values after the last row are read, and not used.
template <typename Lane, typename T, typename Step>
Lane fold(const T* values, const row_bits& rows, Lane start, Step step) {
  if constexpr (std::is_floating_point_v<T>) {
    static constexpr two_masks kMasks[4] = {{0, 0}, {-1, 0}, {0, -1}, {-1, -1}};
    two_reals starts = {start, start};
    two_reals all = fold_lanes(
        rows, starts, 2, [values](size_t i) { return two_at(values + i); },
        [starts](two_reals v, uint64_t bits) { return kMasks[bits & 3] ? v : starts; }, step);
    return step(all[0], all[1]);
  } else {
    return fold_lanes(
        rows, start, 1, [values](size_t i) { return static_cast<Lane>(values[i]); },
        [start](Lane v, uint64_t bits) { return bits & 1 ? v : start; }, step);
  }
}
constexpr auto kSum = [](auto a, auto b) { return a + b; };
template <typename T>
double real_sum(const T* values, const row_bits& rows) {
  return fold(values, rows, 0.0, kSum);
}

template <typename T>
void add_batch(aggregate_state& s, const T* values, const row_bits& rows) {
  if constexpr (std::is_floating_point_v<T>) s.add_real(real_sum(values, rows));
  else if constexpr (sizeof(T) < 8) s.whole += fold(values, rows, int64_t{0}, kSum);
  else s.whole += fold(values, rows, int128{0}, kSum);
}

// The extreme of a batch that has NaNs, or nothing but infinities.
template <typename T>
T ordered_extreme(const T* values, const row_bits& rows, bool is_minimum) {
  uint64_t flip = is_minimum ? 0 : ~uint64_t{0}, best = ~uint64_t{0};
  T extreme{};
  for_each_set(rows, [&](size_t i) {
    uint64_t order = ordered_bits(values[i]) ^ flip;
    if (order <= best) best = order, extreme = values[i];
  });
  return extreme;
}
template <typename T>
T batch_extreme(const T* values, const row_bits& rows, bool is_minimum) {
  using limits = std::numeric_limits<T>;
  constexpr bool kIsReal = std::is_floating_point_v<T>;
  T worst =
      is_minimum ? (kIsReal ? limits::infinity() : limits::max()) : (kIsReal ? -limits::infinity() : limits::lowest());
  using lane = std::conditional_t<kIsReal, double, T>;
  auto extreme = static_cast<T>(
      is_minimum ? fold<lane>(values, rows, worst, [](auto best, auto v) { return v < best ? v : best; })
                 : fold<lane>(values, rows, worst, [](auto best, auto v) { return v > best ? v : best; }));
  if constexpr (kIsReal) {
    bool has_nan = !is_minimum && std::isnan(real_sum(values, rows));  // or infinities of both signs
    if (extreme == worst || has_nan) return ordered_extreme(values, rows, is_minimum);
  }
  return extreme;
}

template <typename T>
void aggregate_batch(aggregate_state& s, aggregate_op op, const T* values, const row_bits& rows) {
  if (op == aggregate_op::sum || op == aggregate_op::mean) add_batch(s, values, rows);
  int64_t count = count_of(rows);
  bool is_minimum = op == aggregate_op::minimum;
  if (count > 0 && (is_minimum || op == aggregate_op::maximum))
    s.add_extreme(batch_extreme(values, rows, is_minimum), is_minimum);
  s.count += count;
}

// An aggregate: op over a program's value, or the number of rows (program -1, count).
struct aggregate_spec {
  aggregate_op op;
  int32_t program;
};

// The input of an aggregate or a key, batch by batch.
class batch_input {
 public:
  batch_input(const plan_view& p, int32_t what) : plan_(p) {
    if (what < 0) return;
    const program& is = p.programs[static_cast<size_t>(what)];
    column_ = is.column;
    is_condition_ = is.result == type_id::boolean;
    if (column_ >= 0) return;
    if (is.result == type_id::int64) date_part_ = &p.code[is.first];
    else value_.emplace(p, is);
  }
  // Removes null rows from `rows`, and calls f with an array of the values, of their own type. Of counted texts, and
  // where there is no input, f gets no array and is not called.
  template <typename F>
  void operator()(int64_t begin, int64_t n, row_bits& rows, F f) {
    if (column_ >= 0) {
      const column_view& v = plan_.columns[static_cast<size_t>(column_)];
      remove_nulls(rows, v, begin, n);
      if (v.id != type_id::utf8) with_batch_values(v, begin, n, f);
    } else if (date_part_) {
      const column_view& v = plan_.columns[date_part_->column];
      remove_nulls(rows, v, begin, n);
      std::array<int64_t, kBatchRows> parts;
      write_date_parts(date_part_->op, v, begin, static_cast<size_t>(n), parts.data());
      f(parts.data());
    } else if (value_) {
      const operand& is = (*value_)(begin, n);
      for (size_t w = 0; w < words_of(n); w++) rows.words[w] &= is.valid.words[w];
      if (is_condition_) with_truths(is, n, f);
      else f(is.numbers);
    }
  }
  const column_view* column() const { return column_ < 0 ? nullptr : &plan_.columns[static_cast<size_t>(column_)]; }

 private:
  template <typename F>
  static void with_truths(const operand& is, int64_t n, F f) {
    std::array<uint8_t, kBatchRows> truths;
    for (size_t i = 0; i < static_cast<size_t>(n); i++) truths[i] = is.truths.words[i / 64] >> (i % 64) & 1;
    f(truths.data());
  }

  const plan_view& plan_;
  int32_t column_ = -1;
  const instruction* date_part_ = nullptr;  // which is computed in integers
  bool is_condition_ = false;
  std::optional<evaluator> value_;
};

class aggregation {
 public:
  aggregation(const plan_view& p, int32_t where, std::span<const aggregate_spec> specs)
      : where_(p, where), specs_(specs), states_(specs.size()) {
    for (const aggregate_spec& s : specs) inputs_.emplace_back(p, s.program);
  }
  void rows(int64_t begin, int64_t end) {
    for_each_batch(begin, end, [&](int64_t first, int64_t n) { batch(first, n); });
  }
  const std::vector<aggregate_state>& states() const { return states_; }

 private:
  void batch(int64_t begin, int64_t n) {
    row_bits selected = where_(begin, n);
    if (count_of(selected) == 0) return;
    for (size_t a = 0; a < specs_.size(); a++) {
      row_bits rows = selected;
      bool done = false;
      inputs_[a](begin, n, rows, [&](const auto* values) {
        aggregate_batch(states_[a], specs_[a].op, values, rows);
        done = true;
      });
      if (!done) states_[a].count += count_of(rows);
    }
  }

  selector where_;
  std::span<const aggregate_spec> specs_;
  std::vector<batch_input> inputs_;
  std::vector<aggregate_state> states_;
};

}  // namespace farside::frame
#endif
