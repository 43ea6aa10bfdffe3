// Evaluates bound expressions, 1024 rows at a time. Programs do not name these; expression.hpp has the semantics.
#ifndef FARSIDE_FRAME_EVALUATE_HPP
#define FARSIDE_FRAME_EVALUATE_HPP

#include <farside/frame/bits.hpp>

#include <chrono>
#include <cmath>

namespace farside::frame {

// An operand on the stack: a number or a boolean for each row of a batch. Rows whose bit in `valid` is not set are
// null. Bits and numbers after the last row are undefined; numbers up to a multiple of 64 rows may be read.
struct operand {
  const double* numbers;  // `own`, or a column's; null: all are `constant`
  double constant;
  row_bits truths, valid;
  std::array<double, kBatchRows> own;
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
struct calendar {
  static constexpr int64_t kDay = 86400 * kSecond;
  // Whole days are added, which makes all times positive: the division of unsigned numbers takes half the time.
  static uint64_t positive(int64_t time) {
    constexpr uint64_t kDays = (uint64_t{1} << 63) / kDay * kDay;
    bool is_too_early = time < -static_cast<int64_t>(kDays);
    return static_cast<uint64_t>(time) + kDays + (is_too_early ? kDay : 0);
  }
  static uint64_t hour_of(int64_t time) { return positive(time) / (3600 * kSecond) % 24; }
  static uint64_t minute_of(int64_t time) { return positive(time) / (60 * kSecond) % 60; }
  static int64_t day_of(int64_t time) { return floor_div(time, kDay); }
};

// Writes the parts of n dates, or times, from row `begin` of a column on.
template <int64_t kSecond, typename Number>
void write_time_parts(opcode part, const int64_t* times, size_t n, Number* to) {
  auto write = [&](auto part_of) {
    for (size_t i = 0; i < n; i++) to[i] = static_cast<Number>(part_of(times[i]));
  };
  if (part == opcode::hour) return write(calendar<kSecond>::hour_of);
  if (part == opcode::minute) return write(calendar<kSecond>::minute_of);
  write([part](int64_t t) { return date_part(part, calendar<kSecond>::day_of(t)); });
}
template <typename Number>
void write_date_parts(opcode part, const column_view& v, int64_t begin, size_t n, Number* to) {
  if (v.id == type_id::date32) {
    const auto* days = v.as<int32_t>() + begin;
    bool is_time = part == opcode::hour || part == opcode::minute;
    for (size_t i = 0; i < n; i++) to[i] = is_time ? Number{0} : static_cast<Number>(date_part(part, days[i]));
    return;
  }
  const auto* times = v.as<int64_t>() + begin;
  switch (v.unit) {
    case time_unit::second:
      return write_time_parts<1>(part, times, n, to);
    case time_unit::millisecond:
      return write_time_parts<1000>(part, times, n, to);
    case time_unit::microsecond:
      return write_time_parts<1000000>(part, times, n, to);
    case time_unit::nanosecond:
      return write_time_parts<1000000000>(part, times, n, to);
  }
}

// The bits of the number 1.5 * 2^52, whose lowest bit counts ones: an integer of less than 51 bits that is added to
// them becomes the number 1.5 * 2^52 + the integer. So two are converted at once, for which there is no instruction
// before AVX-512. Integers of more bits are converted one by one.
inline void write_reals(const int64_t* from, size_t n, double* to) {
  constexpr double kReal = 0x1.8p52;
  constexpr auto kBits = std::bit_cast<uint64_t>(kReal), kLimit = uint64_t{1} << 51;
  for (size_t first = 0; first < n; first += 64) {
    two_integers outside = {};
    for (size_t i = first; i < first + 64; i += 2) {
      two_integers two;
      std::memcpy(&two, from + i, sizeof two);
      outside |= two + kLimit;
      two_reals reals = std::bit_cast<two_reals>(two + kBits) - kReal;
      std::memcpy(to + i, &reals, sizeof reals);
    }
    if ((outside[0] | outside[1]) >> 52 == 0) continue;
    for (size_t i = first; i < first + 64; i++) to[i] = static_cast<double>(from[i]);
  }
}

class evaluator {
 public:
  evaluator(const plan_view& p, const program& what) : plan_(p), program_(what), stack_(what.depth) {}

  // Evaluates rows [begin, begin + n), n <= kBatchRows; begin is a multiple of kBatchRows. Valid until the next call.
  const operand& operator()(int64_t begin, int64_t n) {
    begin_ = begin, rows_ = n, used_ = 0;
    for (const instruction& i : plan_.code.subspan(program_.first, program_.count)) execute(i);
    fill_constant(stack_[0]);
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
        return combine([](auto a, auto b) { return a + b; });
      case subtract:
        return combine([](auto a, auto b) { return a - b; });
      case multiply:
        return combine([](auto a, auto b) { return a * b; });
      case divide:
        return combine([](auto a, auto b) { return a / b; });
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
      case duplicate:
        return push_again();
    }
  }

  const column_view& column_of(const instruction& i) const { return plan_.columns[i.column]; }
  size_t rows() const { return static_cast<size_t>(rows_); }
  size_t words() const { return words_of(rows_); }
  operand& push() {
    operand& to = stack_[used_++];
    to.numbers = to.own.data();
    return to;
  }
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
      using T = decltype(zero);
      const T* from = v.as<T>() + begin_;
      if constexpr (std::is_same_v<T, double>) to.numbers = from;
      else if constexpr (std::is_same_v<T, int64_t>) write_reals(from, rows(), to.own.data());
      else std::copy_n(from, rows(), to.own.data());
    });
  }
  void load_constant(const instruction& i) {
    operand& to = push();
    to.numbers = nullptr;
    to.constant = constant_of(i).real();
    to.valid.words.fill(~uint64_t{0});
  }
  void push_again() {
    operand& to = push();
    const operand& from = top(1);
    to.numbers = from.numbers, to.constant = from.constant, to.valid = from.valid;
  }
  static constant constant_of(const instruction& i) {
    constant c;
    c.is = i.constant_kind;
    c.u = i.bits;
    return c;
  }
  void load_date_part(opcode part, const column_view& v) {
    write_date_parts(part, v, begin_, rows(), push_valid_of(v).own.data());
  }

  static void fill_constant(operand& o) {
    if (o.numbers) return;
    o.own.fill(o.constant);
    o.numbers = o.own.data();
  }
  // Calls f with a function that gives the numbers of rows i and i + 1.
  template <typename F>
  static void with_pairs(const operand& o, F f) {
    if (o.numbers) f([at = o.numbers](size_t i) { return two_at(at + i); });
    else f([two = two_reals{o.constant, o.constant}](size_t) { return two; });
  }
  template <typename F>
  void combine(F f) {
    operand &a = top(1), &b = top();
    size_t end = words() * 64;
    with_pairs(a, [&a, &b, end, f](auto a_at) {
      with_pairs(b, [to = a.own.data(), end, f, a_at](auto b_at) {
        for (size_t i = 0; i < end; i += 2) {
          two_reals made = f(a_at(i), b_at(i));
          std::memcpy(to + i, &made, sizeof made);
        }
      });
    });
    a.numbers = a.own.data();
    both_valid(a, b);
    used_--;
  }
  template <typename F>
  void apply(F f) {
    operand& a = top();
    fill_constant(a);
    for (size_t i = 0; i < rows(); i++) a.own[i] = f(a.numbers[i]);
    a.numbers = a.own.data();
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
      with_pairs(a, [&](auto a_at) {
        with_pairs(b, [&](auto b_at) {
          collect_masks(a.truths.words.data(), rows_, [&](size_t i) { return compared(a_at(i), b_at(i)); });
        });
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
    with_comparison(i.relation, [&](auto compared) {
      collect_masks(to.truths.words.data(), rows_, [&](int64_t row) { return compared(two_at(values + row), wanted); });
    });
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
