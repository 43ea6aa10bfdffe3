// What an operator executes: expressions that were bound to the columns of a data frame, as arrays of trivially
// copyable values. The same plan is executed near or, as bytes, by a memory server. Programs do not name these.
#ifndef FARSIDE_FRAME_PLAN_HPP
#define FARSIDE_FRAME_PLAN_HPP

#include <farside/frame/column.hpp>
#include <farside/frame/expression.hpp>

namespace farside::frame {

constexpr int64_t kBatchRows = 1024;  // rows that are evaluated at a time

struct instruction {
  opcode op;
  comparison relation;
  constant::kind constant_kind;
  uint8_t padding = 0;
  uint32_t column = 0;                       // of column, compare_column and the parts of dates
  uint32_t text_offset = 0, text_bytes = 0;  // of a text constant, in plan_view::texts
  uint64_t bits = 0;                         // of a constant number

  bool operator==(const instruction&) const = default;
};

// A bound expression: instructions [first, first + count) of a plan.
struct program {
  uint32_t first = 0, count = 0;
  uint32_t depth = 0;                 // of the stack
  int32_t column = -1;                // where the expression is nothing but a column
  type_id result = type_id::float64;  // int64 for parts of dates, boolean for conditions
  time_unit unit = time_unit::microsecond;
};

struct plan_view {
  std::span<const column_view> columns = {};
  std::span<const instruction> code = {};
  std::span<const program> programs = {};
  std::string_view texts = {};
};

enum class aggregate_op : uint8_t { count, sum, minimum, maximum, mean };

class plan {
 public:
  // find(name): the column_view of that name.
  template <typename Find>
  uint32_t add(const expression& e, Find find) {
    program p{.first = static_cast<uint32_t>(code_.size())};
    operands_.clear();
    for (const auto& node : e.nodes()) add_node(node, p, find);
    if (operands_.size() != 1) throw std::invalid_argument("farside: the expression is not complete");
    p.count = static_cast<uint32_t>(code_.size()) - p.first;
    set_result(p);
    programs_.push_back(p);
    return static_cast<uint32_t>(programs_.size() - 1);
  }

  plan_view view() const { return {columns_, code_, programs_, texts_}; }
  const std::vector<column_view>& columns() const { return columns_; }
  const program& at(uint32_t index) const { return programs_[index]; }

 private:
  enum class kind { number, boolean, text };
  struct operand_code {
    kind is;
    uint32_t first;  // of its instructions
  };

  [[noreturn]] static void fail(const char* what) { throw std::invalid_argument(std::string("farside: ") + what); }

  template <typename Find>
  void add_node(const expression::node& node, program& p, Find find) {
    switch (node.op) {
      case opcode::column:
        push(p, kind_of(add_column(find(node.text), node.op)));
        break;
      case opcode::number:
        code_.push_back({node.op, {}, node.value.is, 0, 0, 0, 0, node.value.u});
        push(p, kind::number);
        break;
      case opcode::text:
        code_.push_back(
            {node.op, {}, {}, 0, 0, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(node.text.size()), 0});
        texts_ += node.text;
        push(p, kind::text);
        break;
      case opcode::add:
      case opcode::subtract:
      case opcode::multiply:
      case opcode::divide:
        compute_once();
        operate(node, {kind::number, kind::number}, kind::number);
        break;
      case opcode::square_root:
      case opcode::sine:
      case opcode::cosine:
      case opcode::arc_sine:
        operate(node, {kind::number}, kind::number);
        break;
      case opcode::year:
      case opcode::month:
      case opcode::day:
      case opcode::hour:
      case opcode::minute:
      case opcode::weekday:
        add_date_part(node.op);
        break;
      case opcode::compare:
        add_comparison(node);
        break;
      case opcode::logical_and:
      case opcode::logical_or:
        operate(node, {kind::boolean, kind::boolean}, kind::boolean);
        break;
      case opcode::logical_not:
        operate(node, {kind::boolean}, kind::boolean);
        break;
      case opcode::is_null:
        operate(node, {last().is}, kind::boolean);
        break;
      case opcode::compare_column:
      case opcode::duplicate:
        fail("an expression cannot contain an operation of bound expressions");
    }
  }

  // The index of a column, which each plan has once.
  uint32_t add_column(const column_view& v, opcode op) {
    auto same = [&](const column_view& c) { return c.values == v.values && c.validity == v.validity && c.id == v.id; };
    auto at = static_cast<uint32_t>(std::find_if(columns_.begin(), columns_.end(), same) - columns_.begin());
    if (at == columns_.size()) columns_.push_back(v);
    code_.push_back({op, {}, {}, 0, at, 0, 0, 0});
    return at;
  }
  kind kind_of(uint32_t column) const {
    type_id id = columns_[column].id;
    return id == type_id::boolean ? kind::boolean : id == type_id::utf8 ? kind::text : kind::number;
  }

  // After the instruction that makes it.
  void push(program& p, kind k) {
    operands_.push_back({k, static_cast<uint32_t>(code_.size()) - 1});
    p.depth = std::max(p.depth, static_cast<uint32_t>(operands_.size()));
  }
  const operand_code& last(size_t below = 0) const {
    if (operands_.size() <= below) fail("the expression lacks an operand");
    return operands_[operands_.size() - 1 - below];
  }
  operand_code pop() {
    operand_code is = last();
    operands_.pop_back();
    return is;
  }
  void operate(const expression::node& node, std::initializer_list<kind> operands, kind result) {
    uint32_t first = 0;
    for (kind wanted : operands) {
      operand_code is = pop();
      if (is.is != wanted) fail("an operand of the expression has a type that the operation does not take");
      first = is.first;
    }
    code_.push_back({node.op, node.relation, {}, 0, 0, 0, 0, 0});
    operands_.push_back({result, first});
  }
  // Where both operands are the same, as in the square of an expression.
  void compute_once() {
    auto begin = code_.begin() + last(1).first, second = code_.begin() + last().first;
    if (!std::equal(begin, second, second, code_.end())) return;
    code_.erase(second, code_.end());
    code_.push_back({opcode::duplicate, {}, {}, 0, 0, 0, 0, 0});
  }
  // Replaces the column that was just loaded.
  void add_date_part(opcode op) {
    bool is_column = !code_.empty() && code_.back().op == opcode::column;
    type_id id = is_column ? columns_[code_.back().column].id : type_id::utf8;
    if (id != type_id::date32 && id != type_id::timestamp)
      fail("year() to weekday() take a date32 or timestamp column");
    code_.back().op = op;
  }
  void add_comparison(const expression::node& node) {
    operand_code b = pop(), a = pop();
    if (a.is != b.is || a.is == kind::boolean) fail("a comparison needs two numbers, or a utf8 column and a text");
    if (!compare_with_constant(node.relation)) {
      if (a.is == kind::text) fail("texts are compared with constants only");
      code_.push_back({node.op, node.relation, {}, 0, 0, 0, 0, 0});
    }
    operands_.push_back({kind::boolean, a.first});
  }
  // Joins `column constant compare` to one instruction. False if the operands are others.
  bool compare_with_constant(comparison relation) {
    auto is_constant = [](const instruction& i) { return i.op == opcode::number || i.op == opcode::text; };
    instruction b = code_.back(), a = code_[code_.size() - 2];
    if (a.op != opcode::column) std::swap(a, b), relation = mirrored(relation);
    if (a.op != opcode::column || !is_constant(b)) return false;
    code_.resize(code_.size() - 2);
    code_.push_back(
        {opcode::compare_column, relation, b.constant_kind, 0, a.column, b.text_offset, b.text_bytes, b.bits});
    return true;
  }
  static comparison mirrored(comparison c) {
    switch (c) {
      case comparison::less:
        return comparison::greater;
      case comparison::less_or_equal:
        return comparison::greater_or_equal;
      case comparison::greater:
        return comparison::less;
      case comparison::greater_or_equal:
        return comparison::less_or_equal;
      default:
        return c;
    }
  }

  void set_result(program& p) {
    const instruction& last = code_.back();
    if (p.count == 1 && last.op == opcode::column) {
      p.column = static_cast<int32_t>(last.column);
      p.result = columns_[last.column].id;
      p.unit = columns_[last.column].unit;
    } else if (operands_.back().is == kind::boolean) {
      p.result = type_id::boolean;
    } else if (operands_.back().is == kind::text) {
      fail("a text constant is not a column");
    } else if (last.op >= opcode::year && last.op <= opcode::weekday) {
      p.result = type_id::int64;
    }
  }

  std::vector<column_view> columns_;
  std::vector<instruction> code_;
  std::vector<program> programs_;
  std::string texts_;
  std::vector<operand_code> operands_;  // on the stack, while an expression is added
};

}  // namespace farside::frame
#endif
