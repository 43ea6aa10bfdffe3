// The operators of farside::data_frame as C functions, which python/farside/_compute.py calls by ctypes: it has the
// same structures. Tables are immutable, so all functions may be called concurrently.
#include <farside/frame/data_frame.hpp>

#include <cstdio>

#define EXPORT __attribute__((visibility("default")))

namespace {

using farside::data_frame;
using farside::frame::aggregate_op, farside::frame::comparison, farside::frame::constant, farside::frame::expression;
using farside::frame::opcode, farside::frame::placement;

// An expression in postfix order.
struct Node {
  const char* op;    // "column", "text", "integer", "unsigned", "real", or a name of kOperations
  const char* text;  // of a column's name or a text
  uint64_t text_bytes;
  uint64_t bits;  // of a constant number
};
struct Expression {
  const Node* nodes;
  uint64_t count;  // 0: there is none
};
struct Item {
  const char* name;
  const char* op;  // of an aggregate; of join, the key's name in the other table
  Expression of;
};
struct Items {
  const Item* first;
  uint64_t count;

  const Item* begin() const { return first; }
  const Item* end() const { return first + count; }
};
struct Request {
  const char* operation;
  const data_frame *table, *other;
  Items keys;        // columns; of with_column and top_k one, with its expression
  Items aggregates;  // of aggregate and group_by
  Expression condition;
  uint64_t k;
  int32_t is_descending, place;
};
struct Failure {
  enum Kind : int32_t { kNone, kValue, kIndex, kOverflow, kMemory, kSystem } kind;
  int32_t code;  // errno
  char text[504];
};

struct NamedOperation {
  std::string_view name;
  opcode op;
  comparison relation = comparison::equal;
};
constexpr NamedOperation kOperations[] = {
    {"+", opcode::add},
    {"-", opcode::subtract},
    {"*", opcode::multiply},
    {"/", opcode::divide},
    {"sqrt", opcode::square_root},
    {"sin", opcode::sine},
    {"cos", opcode::cosine},
    {"asin", opcode::arc_sine},
    {"year", opcode::year},
    {"month", opcode::month},
    {"day", opcode::day},
    {"hour", opcode::hour},
    {"minute", opcode::minute},
    {"weekday", opcode::weekday},
    {"==", opcode::compare, comparison::equal},
    {"!=", opcode::compare, comparison::not_equal},
    {"<", opcode::compare, comparison::less},
    {"<=", opcode::compare, comparison::less_or_equal},
    {">", opcode::compare, comparison::greater},
    {">=", opcode::compare, comparison::greater_or_equal},
    {"&", opcode::logical_and},
    {"|", opcode::logical_or},
    {"~", opcode::logical_not},
    {"is_null", opcode::is_null},
};
constexpr std::string_view kAggregates[] = {"count", "sum", "min", "max", "mean"};  // as aggregate_op

[[noreturn]] void refuse(const char* what, std::string_view name) {
  throw std::invalid_argument("there is no " + std::string(what) + " " + std::string(name));
}

expression::node node_of(const Node& n) {
  std::string_view op = n.op;
  if (op == "integer") return {.op = opcode::number, .value = constant(static_cast<int64_t>(n.bits))};
  if (op == "unsigned") return {.op = opcode::number, .value = constant(n.bits)};
  if (op == "real") return {.op = opcode::number, .value = constant(std::bit_cast<double>(n.bits))};
  if (op == "column") return {.op = opcode::column, .text = {n.text, n.text_bytes}};
  if (op == "text") return {.op = opcode::text, .text = {n.text, n.text_bytes}};
  for (const NamedOperation& known : kOperations) {
    if (op == known.name) return {.op = known.op, .relation = known.relation};
  }
  refuse("operation", op);
}
expression expression_of(const Expression& e) {
  std::vector<expression::node> nodes;
  for (uint64_t i = 0; i < e.count; i++) nodes.push_back(node_of(e.nodes[i]));
  return expression(std::move(nodes));
}
std::optional<expression> optional_expression(const Expression& e) {
  if (e.count == 0) return {};
  return expression_of(e);
}
std::vector<std::string> names_of(const Items& items) {
  std::vector<std::string> made;
  for (const Item& i : items) made.emplace_back(i.name);
  return made;
}
std::vector<data_frame::key> keys_of(const Items& items) {
  std::vector<data_frame::key> made;
  for (const Item& i : items) made.emplace_back(std::string(i.name), expression_of(i.of));
  return made;
}
std::vector<data_frame::aggregate_of> aggregates_of(const Items& items) {
  std::vector<data_frame::aggregate_of> made;
  for (const Item& i : items) {
    const auto* known = std::find(std::begin(kAggregates), std::end(kAggregates), i.op);
    if (known == std::end(kAggregates)) refuse("aggregate", i.op);
    made.push_back({i.name, static_cast<aggregate_op>(known - kAggregates), optional_expression(i.of)});
  }
  return made;
}

data_frame join(const Request& r, placement where) {
  std::vector<std::string> others;
  for (const Item& i : r.keys) others.emplace_back(i.op);
  return r.table->join(*r.other, names_of(r.keys), others, where);
}

data_frame run(const Request& r) {
  using order = data_frame::order;
  std::string_view op = r.operation;
  const data_frame& t = *r.table;
  auto where = static_cast<placement>(r.place);
  if (op == "select") return t.select(names_of(r.keys));
  if (op == "with_column") return t.with(r.keys.first->name, expression_of(r.keys.first->of), where);
  if (op == "filter") return t.filter(expression_of(r.condition), where);
  if (op == "take") return t.take_rows((*r.other)[0], where);
  if (op == "aggregate") return t.aggregate(aggregates_of(r.aggregates), optional_expression(r.condition), where);
  if (op == "group_by")
    return t.group_by(keys_of(r.keys), aggregates_of(r.aggregates), optional_expression(r.condition), where);
  if (op == "join") return join(r, where);
  if (op == "top_k")
    return t.top_k(r.k, expression_of(r.keys.first->of), r.is_descending ? order::descending : order::ascending,
                   optional_expression(r.condition), where);
  refuse("operator", op);
}

void report(Failure* failure, Failure::Kind kind, const char* text, int code = 0) {
  constexpr std::string_view kProgram = "farside: ";
  failure->kind = kind;
  failure->code = code;
  if (std::string_view(text).starts_with(kProgram)) text += kProgram.size();
  snprintf(failure->text, sizeof failure->text, "%s", text);
}

// Calls work(), and turns exceptions into failures.
template <typename Work>
void guarded(Failure* failure, Work work) {
  failure->kind = Failure::kNone;
  try {
    work();
  } catch (const std::bad_alloc&) {
    report(failure, Failure::kMemory, "far memory is used up; give the server more, or drop tables");
  } catch (const std::system_error& thrown) {
    bool is_large = thrown.code() == std::errc::argument_list_too_long;
    report(
        failure, Failure::kSystem,
        is_large ? "the result is larger than 1 MiB, which no server returns; use place=\"automatic\"" : thrown.what(),
        thrown.code().value());
  } catch (const std::overflow_error& thrown) {
    report(failure, Failure::kOverflow, thrown.what());
  } catch (const std::out_of_range& thrown) {
    report(failure, Failure::kIndex, thrown.what());
  } catch (const std::exception& thrown) {
    report(failure, Failure::kValue, thrown.what());
  }
}

}  // namespace

extern "C" {

// A table without columns.
EXPORT data_frame* farside_compute_new() { return new (std::nothrow) data_frame; }
EXPORT void farside_compute_free(data_frame* table) { delete table; }

// Appends a copy of an Arrow array, while no other thread uses the table. Releases both structures.
EXPORT void farside_compute_add(data_frame* table, const char* name, ArrowSchema* schema, ArrowArray* array,
                                Failure* failure) {
  guarded(failure, [&] { table->add(name, farside::frame::import_column(schema, array)); });
}
// As a record batch, without a copy.
EXPORT void farside_compute_export(const data_frame* table, ArrowSchema* schema, ArrowArray* array, Failure* failure) {
  guarded(failure, [&] { table->export_arrow(schema, array); });
}
// The result of an operator, or null.
EXPORT data_frame* farside_compute_run(const Request* request, Failure* failure) {
  data_frame* made = nullptr;
  guarded(failure, [&] { made = new data_frame(run(*request)); });
  return made;
}
}
