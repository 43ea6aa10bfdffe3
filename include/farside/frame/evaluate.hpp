// Evaluates bound expressions, 1024 rows at a time. Programs do not name these; expression.hpp has the semantics.
#ifndef FARSIDE_FRAME_EVALUATE_HPP
#define FARSIDE_FRAME_EVALUATE_HPP

#include <farside/frame/bits.hpp>

#include <chrono>
#include <cmath>

namespace farside::frame {

// An operand on the stack: a number or a boolean for each row of a batch. Rows whose bit in `valid` is not set are
// null. Bits after the last row are undefined.
struct operand {
  std::array<double, kBatchRows> numbers;
  row_bits truths, valid;
};

constexpr int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Days since 1970-01-01, of any year: std::chrono knows years up to 32767, so whole periods of 400 years are added.
inline int64_t date_part(opcode part, int64_t days) {
  constexpr int64_t kDaysOf400Years = 146097;
  int64_t periods = floor_div(days, kDaysOf400Years);
  auto within = static_cast<int>(days - periods * kDaysOf400Years);
  if (part == opcode::weekday) return (within + 4) % 7;  // 1970-01-01 was a Thursday; 146097 days are whole weeks
  std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{within}}};
  if (part == opcode::year) return static_cast<int>(date.year()) + 400 * periods;
  return static_cast<unsigned>(part == opcode::month ? unsigned{date.month()} : unsigned{date.day()});
}

// kSecond, units of a second, is a constant, because division by one is several times as fast.
template <int64_t kSecond>
int64_t time_part(opcode part, int64_t time) {
  constexpr int64_t kDay = 86400 * kSecond;
  int64_t days = floor_div(time, kDay), of_day = time - days * kDay;
  if (part == opcode::hour) return of_day / (3600 * kSecond);
  if (part == opcode::minute) return of_day / (60 * kSecond) % 60;
  return date_part(part, days);
}

class evaluator {
 public:
  evaluator(const plan_view& p, const program& what) : plan_(p), program_(what), stack_(what.depth) {}

  // Evaluates rows [begin, begin + n), n <= kBatchRows; begin is a multiple of kBatchRows. Valid until the next call.
  const operand& operator()(int64_t begin, int64_t n) {
    begin_ = begin, rows_ = n, used_ = 0;
    for (const instruction& i : plan_.code.subspan(program_.first, program_.count)) execute(i);
    return stack_[0];
  }

 private:
  using enum opcode;

  void execute(const instruction& i) {
    switch (i.op) {
      case opcode::column:
        return load(column_of(i));
      case number:
        return load_constant(i);
      case text:
        return;  // compare_column has the texts
      case add:
        return combine([](double a, double b) { return a + b; });
      case subtract:
        return combine([](double a, double b) { return a - b; });
      case multiply:
        return combine([](double a, double b) { return a * b; });
      case divide:
        return combine([](double a, double b) { return a / b; });
      case square_root:
        return apply([](double a) { return std::sqrt(a); });
      case sine:
        return apply([](double a) { return std::sin(a); });
      case cosine:
        return apply([](double a) { return std::cos(a); });
      case arc_sine:
        return apply([](double a) { return std::asin(a); });
      case year:
      case month:
      case day:
      case hour:
      case minute:
      case weekday:
        return load_date_part(i.op, column_of(i));
      case compare:
        return compare_numbers(i.relation);
      case compare_column:
        return compare_with_constant(i);
      case logical_and:
        return join_truths([](uint64_t a, uint64_t b) { return a & b; }, 0);
      case logical_or:
        return join_truths([](uint64_t a, uint64_t b) { return a | b; }, ~uint64_t{0});
      case logical_not:
        return negate();
      case is_null:
        return test_null();
    }
  }

  const column_view& column_of(const instruction& i) const { return plan_.columns[i.column]; }
  size_t rows() const { return static_cast<size_t>(rows_); }
  size_t words() const { return words_of(rows_); }
  operand& push() { return stack_[used_++]; }
  operand& top(size_t below = 0) { return stack_[used_ - 1 - below]; }

  operand& push_valid_of(const column_view& v) {
    operand& to = push();
    to.valid.words.fill(~uint64_t{0});
    remove_nulls(to.valid, v, begin_, rows_);
    return to;
  }

  void load(const column_view& v) {
    operand& to = push_valid_of(v);
    if (v.id == type_id::utf8) return;  // is used for is_null only
    if (v.id == type_id::boolean) {
      for (size_t w = 0; w < words(); w++)
        to.truths.words[w] = word_at(v.values, begin_ + static_cast<int64_t>(w) * 64);
      return;
    }
    with_stored_type(v.id, [&](auto zero) {
      const auto* from = v.as<decltype(zero)>() + begin_;
      for (size_t i = 0; i < rows(); i++) to.numbers[i] = static_cast<double>(from[i]);
    });
  }
  void load_constant(const instruction& i) {
    operand& to = push();
    to.numbers.fill(constant_of(i).real());
    to.valid.words.fill(~uint64_t{0});
  }
  static constant constant_of(const instruction& i) {
    constant c;
    c.is = i.constant_kind;
    c.u = i.bits;
    return c;
  }
  void load_date_part(opcode part, const column_view& v) {
    operand& to = push_valid_of(v);
    if (v.id == type_id::date32) {
      const auto* from = v.as<int32_t>() + begin_;
      bool is_time = part == hour || part == minute;
      for (size_t i = 0; i < rows(); i++) to.numbers[i] = is_time ? 0 : static_cast<double>(date_part(part, from[i]));
      return;
    }
    switch (v.unit) {
      case time_unit::second:
        return fill_time_parts<1>(part, v, to);
      case time_unit::millisecond:
        return fill_time_parts<1000>(part, v, to);
      case time_unit::microsecond:
        return fill_time_parts<1000000>(part, v, to);
      case time_unit::nanosecond:
        return fill_time_parts<1000000000>(part, v, to);
    }
  }
  template <int64_t kSecond>
  void fill_time_parts(opcode part, const column_view& v, operand& to) {
    const auto* from = v.as<int64_t>() + begin_;
    for (size_t i = 0; i < rows(); i++) to.numbers[i] = static_cast<double>(time_part<kSecond>(part, from[i]));
  }

  // Of all rows of the arrays: with a constant number of turns, the loop is vectorized at -O2.
  template <typename F>
  void combine(F f) {
    operand &a = top(1), &b = top();
    for (size_t i = 0; i < a.numbers.size(); i++) a.numbers[i] = f(a.numbers[i], b.numbers[i]);
    both_valid(a, b);
    used_--;
  }
  template <typename F>
  void apply(F f) {
    operand& a = top();
    for (size_t i = 0; i < rows(); i++) a.numbers[i] = f(a.numbers[i]);
  }
  void both_valid(operand& a, const operand& b) {
    for (size_t w = 0; w < words(); w++) a.valid.words[w] &= b.valid.words[w];
  }

  // Calls f with a comparison of two values of one type.
  template <typename F>
  static void with_comparison(comparison relation, F f) {
    switch (relation) {
      case comparison::equal:
        return f([](auto a, auto b) { return a == b; });
      case comparison::not_equal:
        return f([](auto a, auto b) { return a != b; });
      case comparison::less:
        return f([](auto a, auto b) { return a < b; });
      case comparison::less_or_equal:
        return f([](auto a, auto b) { return a <= b; });
      case comparison::greater:
        return f([](auto a, auto b) { return a > b; });
      case comparison::greater_or_equal:
        return f([](auto a, auto b) { return a >= b; });
    }
  }
  void compare_numbers(comparison relation) {
    operand &a = top(1), &b = top();
    with_comparison(relation, [&](auto compared) {
      collect_bits(a.truths.words.data(), rows_, [&](int64_t i) {
        return compared(a.numbers[static_cast<size_t>(i)], b.numbers[static_cast<size_t>(i)]);
      });
    });
    both_valid(a, b);
    used_--;
  }

  void compare_with_constant(const instruction& i) {
    const column_view& v = column_of(i);
    operand& to = push_valid_of(v);
    if (v.id == type_id::utf8) return compare_texts(i, v, to);
    with_stored_type(v.id, [&](auto zero) { compare_values<decltype(zero)>(i, v, to); });
  }
  void compare_texts(const instruction& i, const column_view& v, operand& to) {
    std::string_view wanted = plan_.texts.substr(i.text_offset, i.text_bytes);
    with_comparison(i.relation, [&](auto compared) {
      collect_bits(to.truths.words.data(), rows_,
                   [&](int64_t row) { return compared(v.text_at(begin_ + row), wanted); });
    });
  }
  template <typename T>
  void compare_values(const instruction& i, const column_view& v, operand& to) {
    constant c = constant_of(i);
    const T* values = v.as<T>() + begin_;
    if constexpr (std::is_integral_v<T>) {
      if (c.is == constant::kind::signed_integer) return compare_integers(i.relation, values, c.i, to);
      if (c.is == constant::kind::unsigned_integer) return compare_integers(i.relation, values, c.u, to);
    }
    double wanted = c.real();
    compare_to(
        i.relation, to, [&](int64_t row) { return static_cast<double>(values[row]); }, wanted);
  }
  // A constant outside of T's range is less, or greater, than every value.
  template <typename T, typename C>
  void compare_integers(comparison relation, const T* values, C wanted, operand& to) {
    if (std::in_range<T>(wanted)) {
      compare_to(
          relation, to, [&](int64_t row) { return values[row]; }, static_cast<T>(wanted));
    } else {
      int order = std::cmp_less(wanted, 0) ? 1 : -1;  // of every value to the constant
      compare_to(
          relation, to, [&](int64_t) { return order; }, 0);
    }
  }
  template <typename Value, typename C>
  void compare_to(comparison relation, operand& to, Value value, C wanted) {
    with_comparison(relation, [&](auto compared) {
      collect_bits(to.truths.words.data(), rows_, [&](int64_t row) { return compared(value(row), wanted); });
    });
  }

  // Kleene's logic. `decisive`: all bits set where true decides the result, none where false does.
  template <typename F>
  void join_truths(F f, uint64_t decisive) {
    operand &a = top(1), &b = top();
    for (size_t w = 0; w < words(); w++) {
      uint64_t &at = a.truths.words[w], &av = a.valid.words[w], bt = b.truths.words[w], bv = b.valid.words[w];
      uint64_t decided = (av & ~(at ^ decisive)) | (bv & ~(bt ^ decisive));
      at = (decided & decisive) | (~decided & f(at, bt));
      av = (av & bv) | decided;
    }
    used_--;
  }
  void negate() {
    for (size_t w = 0; w < words(); w++) top().truths.words[w] = ~top().truths.words[w];
  }
  void test_null() {
    for (size_t w = 0; w < words(); w++) top().truths.words[w] = ~top().valid.words[w];
    top().valid.words.fill(~uint64_t{0});
  }

  const plan_view& plan_;
  const program& program_;
  std::vector<operand> stack_;
  size_t used_ = 0;
  int64_t begin_ = 0, rows_ = 0;
};

// The rows of a batch that a condition selects.
class selector {
 public:
  // where: an index of a program, or -1 for all rows.
  selector(const plan_view& p, int32_t where) {
    if (where >= 0) condition_.emplace(p, p.programs[static_cast<size_t>(where)]);
  }
  row_bits operator()(int64_t begin, int64_t n) {
    row_bits selected = first_rows(n);
    if (!condition_) return selected;
    const operand& is = (*condition_)(begin, n);
    for (size_t w = 0; w < words_of(n); w++) selected.words[w] &= is.truths.words[w] & is.valid.words[w];
    return selected;
  }

 private:
  std::optional<evaluator> condition_;
};

// Calls f(begin, n) for the batches of rows [begin, end). begin is a multiple of kBatchRows.
template <typename F>
void for_each_batch(int64_t begin, int64_t end, F f) {
  for (; begin < end; begin += kBatchRows) f(begin, std::min(kBatchRows, end - begin));
}

}  // namespace farside::frame
#endif
