// Expressions over the columns of a data frame, for filters, computed columns, keys and aggregates.
//
//   using farside::frame::col;
//   auto is_long = col("metres") > 20000 && !col("paid").is_null();
//   auto minutes = (col("dropoff") - col("pickup")) / 60e6;
//   auto nights = hour(col("pickup")) >= 22.0 || col("zone") == "Airport";
//
// Semantics, as in SQL where nothing else is stated:
// - Arithmetic is done in double. Division by zero gives an infinity or NaN, as IEEE 754 has it.
// - A column compared with a constant is compared exactly in the column's type, also for integers above 2^53. All other
//   comparisons of numbers are of doubles. A comparison with a NaN is false, except for !=.
// - Texts are compared with constants, byte by byte. Booleans are used directly: col("paid") && ...
// - A null operand gives null, except that null && false is false and null || true is true. Filters take rows where the
//   condition is true, not null.
// - year() to weekday() of a date32 or timestamp column are integers, in UTC; weekday: 0 is Sunday.
//
// An expression names columns, and is bound to a data frame where it is used: std::invalid_argument if a column is
// missing or has a type that does not fit. Building is cheap; the rows are evaluated in batches (evaluate.hpp).
#ifndef FARSIDE_FRAME_EXPRESSION_HPP
#define FARSIDE_FRAME_EXPRESSION_HPP

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace farside::frame {

enum class opcode : uint8_t {
  column,  // pushes a column's value: a number, a boolean or a text
  number,  // pushes a constant
  text,
  add,  // two numbers to a number
  subtract,
  multiply,
  divide,
  square_root,  // a number to a number
  sine,
  cosine,
  arc_sine,
  year,  // a date or timestamp column to a number
  month,
  day,
  hour,
  minute,
  weekday,
  compare,         // two operands to a boolean
  compare_column,  // a column with a constant to a boolean; in bound expressions only, as the next
  duplicate,       // pushes the last operand, a number, once more
  logical_and,     // two booleans to a boolean
  logical_or,
  logical_not,
  is_null,  // any operand to a boolean
};

enum class comparison : uint8_t { equal, not_equal, less, less_or_equal, greater, greater_or_equal };

// A constant number as it was written: as an integer where it is one.
struct constant {
  enum class kind : uint8_t { signed_integer, unsigned_integer, real } is = kind::real;
  union {
    int64_t i;
    uint64_t u;
    double d;
  };

  constant() : d(0) {}
  template <typename T>
  explicit constant(T value) {
    if constexpr (std::is_floating_point_v<T>) is = kind::real, d = static_cast<double>(value);
    else if constexpr (std::is_signed_v<T>) is = kind::signed_integer, i = value;
    else is = kind::unsigned_integer, u = value;
  }
  double real() const {
    if (is == kind::real) return d;
    return is == kind::signed_integer ? static_cast<double>(i) : static_cast<double>(u);
  }
};

class expression {
 public:
  // In postfix order.
  struct node {
    opcode op;
    comparison relation = comparison::equal;
    constant value = {};
    std::string text = {};  // a column's name, or a text constant
  };

  expression(const char* text) : nodes_{{.op = opcode::text, .text = text}} {}
  expression(std::string text) : nodes_{{.op = opcode::text, .text = std::move(text)}} {}
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  expression(T value) : nodes_{{.op = opcode::number, .value = constant(value)}} {}
  explicit expression(std::vector<node> nodes) : nodes_(std::move(nodes)) {}

  const std::vector<node>& nodes() const { return nodes_; }
  expression is_null() const { return then({.op = opcode::is_null}); }
  expression then(node last) const {
    expression made = *this;
    made.nodes_.push_back(std::move(last));
    return made;
  }
  static expression of_two(const expression& a, const expression& b, node last) {
    expression made = a;
    made.nodes_.insert(made.nodes_.end(), b.nodes_.begin(), b.nodes_.end());
    return made.then(std::move(last));
  }

 private:
  std::vector<node> nodes_;
};

inline expression col(std::string name) {
  return expression(std::vector<expression::node>{{.op = opcode::column, .text = std::move(name)}});
}

inline expression operator+(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::add});
}
inline expression operator-(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::subtract});
}
inline expression operator*(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::multiply});
}
inline expression operator/(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::divide});
}
inline expression operator&&(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::logical_and});
}
inline expression operator||(const expression& a, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::logical_or});
}
inline expression operator!(const expression& a) { return a.then({.op = opcode::logical_not}); }

inline expression compared(const expression& a, comparison relation, const expression& b) {
  return expression::of_two(a, b, {.op = opcode::compare, .relation = relation});
}
inline expression operator==(const expression& a, const expression& b) { return compared(a, comparison::equal, b); }
inline expression operator!=(const expression& a, const expression& b) { return compared(a, comparison::not_equal, b); }
inline expression operator<(const expression& a, const expression& b) { return compared(a, comparison::less, b); }
inline expression operator<=(const expression& a, const expression& b) {
  return compared(a, comparison::less_or_equal, b);
}
inline expression operator>(const expression& a, const expression& b) { return compared(a, comparison::greater, b); }
inline expression operator>=(const expression& a, const expression& b) {
  return compared(a, comparison::greater_or_equal, b);
}

inline expression sqrt(const expression& a) { return a.then({.op = opcode::square_root}); }
inline expression sin(const expression& a) { return a.then({.op = opcode::sine}); }
inline expression cos(const expression& a) { return a.then({.op = opcode::cosine}); }
inline expression asin(const expression& a) { return a.then({.op = opcode::arc_sine}); }
inline expression year(const expression& a) { return a.then({.op = opcode::year}); }
inline expression month(const expression& a) { return a.then({.op = opcode::month}); }
inline expression day(const expression& a) { return a.then({.op = opcode::day}); }
inline expression hour(const expression& a) { return a.then({.op = opcode::hour}); }
inline expression minute(const expression& a) { return a.then({.op = opcode::minute}); }
inline expression weekday(const expression& a) { return a.then({.op = opcode::weekday}); }

}  // namespace farside::frame
#endif
