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

// The sum of a batch. The order of additions depends on the rows' places only, so it is the same near and on a server.
template <typename T>
void add_batch(aggregate_state& s, const T* values, const row_bits& rows) {
  if constexpr (std::is_floating_point_v<T>) {
    std::array<double, 8> lanes = {};
    for_each_set(rows, [&](size_t i) { lanes[i % 8] += static_cast<double>(values[i]); });
    s.add_real(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
  } else if constexpr (sizeof(T) < 8) {
    int64_t sum = 0;  // of 1024 numbers of 32 bits
    for_each_set(rows, [&](size_t i) { sum += values[i]; });
    s.whole += sum;
  } else {
    int64_t high = 0;  // sums of the halves, which do not overflow and can be vectorized
    uint64_t low = 0;
    for_each_set(rows, [&](size_t i) {
      high += static_cast<int64_t>(values[i] >> 32);
      low += static_cast<uint32_t>(values[i]);
    });
    s.whole += static_cast<int128>(high) * (int128{1} << 32) + static_cast<int128>(low);
  }
}

template <typename T>
void add_batch_extreme(aggregate_state& s, const T* values, const row_bits& rows, bool is_minimum) {
  uint64_t flip = is_minimum ? 0 : ~uint64_t{0}, best = ~uint64_t{0};
  bool any = false;
  T extreme{};
  for_each_set(rows, [&](size_t i) {
    uint64_t order = ordered_bits(values[i]) ^ flip;
    if (order < best || !any) best = order, extreme = values[i], any = true;
  });
  if (any) s.add_extreme(extreme, is_minimum);
}

template <typename T>
void aggregate_batch(aggregate_state& s, aggregate_op op, const T* values, const row_bits& rows) {
  if (op == aggregate_op::sum || op == aggregate_op::mean) add_batch(s, values, rows);
  if (op == aggregate_op::minimum || op == aggregate_op::maximum)
    add_batch_extreme(s, values, rows, op == aggregate_op::minimum);
  s.count += count_of(rows);
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
    result_ = is.result;
    if (column_ < 0) value_.emplace(p, is);
  }
  // Removes null rows from `rows`, and calls f with an array of the values, of their own type. Of counted texts, and
  // where there is no input, f gets no array and is not called.
  template <typename F>
  void operator()(int64_t begin, int64_t n, row_bits& rows, F f) {
    if (column_ >= 0) {
      const column_view& v = plan_.columns[static_cast<size_t>(column_)];
      remove_nulls(rows, v, begin, n);
      if (v.id != type_id::utf8) with_batch_values(v, begin, n, f);
    } else if (value_) {
      const operand& is = (*value_)(begin, n);
      for (size_t w = 0; w < words_of(n); w++) rows.words[w] &= is.valid.words[w];
      if (result_ == type_id::boolean) with_truths(is, n, f);
      else if (result_ == type_id::int64) with_integers(is, n, f);
      else f(is.numbers.data());
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
  template <typename F>
  static void with_integers(const operand& is, int64_t n, F f) {
    std::array<int64_t, kBatchRows> integers;
    for (size_t i = 0; i < static_cast<size_t>(n); i++) integers[i] = static_cast<int64_t>(is.numbers[i]);
    f(integers.data());
  }

  const plan_view& plan_;
  int32_t column_ = -1;
  type_id result_ = type_id::int64;
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
