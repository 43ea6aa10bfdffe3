// The operators of farside::data_frame. Included by <farside/frame/data_frame.hpp>.
#ifndef FARSIDE_FRAME_DATA_FRAME_OPERATORS_HPP
#define FARSIDE_FRAME_DATA_FRAME_OPERATORS_HPP

#include <farside/frame/data_frame_class.hpp>

namespace farside {

// Makes requests of a data frame's operators, and data frames of the replies.
class data_frame::builder {
 public:
  builder(const data_frame& from, placement where) : from_(from), where_(where) {}

  int32_t bind(const expression& e) { return bind(plan_, from_, e); }
  int32_t bind_condition(const optional_expression& e) {
    if (!e) return -1;
    int32_t index = bind(*e);
    if (program(index).result != frame::type_id::boolean)
      throw std::invalid_argument("farside: the condition is not a boolean expression");
    return index;
  }
  static int32_t bind(frame::plan& to, const data_frame& frame, const expression& e) {
    return static_cast<int32_t>(to.add(e, [&](const std::string& name) { return frame[name].view(); }));
  }
  const frame::program& program(int32_t index) const { return plan_.at(static_cast<uint32_t>(index)); }

  // Runs a request over the plan, of which the caller filled in the rest. writes: memory beside the outputs.
  frame::message run(frame::request_view r, std::initializer_list<offload::range> writes = {}) {
    r.columns = plan_.view();
    r.fixed.rows = from_.rows_;
    frame::query q(r);
    for (const offload::range& w : writes) q.writes(w.data, static_cast<int64_t>(w.bytes));
    return q.run(from_.rows_ == 0 ? placement::near : where_);
  }
  template <typename T>
  static std::span<T> first_array(frame::message& reply) {
    return frame::unpacker(reply).get<T>();
  }

  // ---- Copies of rows ----

  // All columns with the rows that `r` names, of which there are `count`; texts: the bytes of each utf8 column's text.
  data_frame copied(frame::request_view r, int64_t count, std::span<const int64_t> texts) const;
  // The programs of all utf8 columns.
  std::vector<int32_t> bind_texts() {
    std::vector<int32_t> made;
    for (size_t c = 0; c < from_.columns(); c++) {
      if (from_[c].type().id == frame::type_id::utf8) made.push_back(bind(frame::col(from_.names_[c])));
    }
    return made;
  }

  // ---- Aggregates ----

  std::vector<frame::aggregate_spec> bind_aggregates(const std::vector<aggregate_of>& what) {
    std::vector<frame::aggregate_spec> made;
    for (const aggregate_of& a : what) {
      if (!a.of && a.op != frame::aggregate_op::count)
        throw std::invalid_argument("farside: aggregate " + a.name + " needs an expression");
      int32_t index = a.of ? bind(*a.of) : -1;
      if (index >= 0 && program(index).result == frame::type_id::utf8 && a.op != frame::aggregate_op::count)
        throw std::invalid_argument("farside: aggregate " + a.name + ": utf8 columns can be counted only");
      made.push_back({a.op, index});
    }
    return made;
  }
  // The type of an expression's value.
  frame::data_type type_of(int32_t index, const expression& e) const {
    const frame::program& p = program(index);
    return p.column >= 0 ? from_[e.nodes()[0].text].type() : frame::data_type{p.result};
  }
  // The column of an aggregate; state(n): that of group n.
  template <typename State>
  column aggregated(const aggregate_of& what, const frame::aggregate_spec& spec, int64_t groups, State state) const;

 private:
  struct copy_target {
    std::shared_ptr<frame::buffer> validity, values, text;
    frame::column_output output;
  };
  static copy_target make_target(const column& from, int64_t rows, int64_t text_bytes);
  template <typename T, typename State, typename Value>
  static column column_of_states(frame::data_type type, int64_t groups, State state, Value value);
  template <typename State>
  column extremes(const frame::data_type& type, int64_t groups, State state) const;

  const data_frame& from_;
  placement where_;
  frame::plan plan_;
};

inline data_frame::builder::copy_target data_frame::builder::make_target(const column& from, int64_t rows,
                                                                         int64_t text_bytes) {
  using frame::buffer;
  copy_target to;
  frame::type_id id = from.type().id;
  int64_t value_bytes = rows * static_cast<int64_t>(frame::width_of(id));
  if (id == frame::type_id::boolean) value_bytes = frame::bitmap_bytes(rows);
  if (id == frame::type_id::utf8) value_bytes = (rows + 1) * static_cast<int64_t>(sizeof(int32_t));
  to.values = buffer::create(value_bytes);
  if (from.nulls() > 0) to.validity = buffer::create(frame::bitmap_bytes(rows));
  if (id == frame::type_id::utf8) to.text = buffer::create(text_bytes);
  to.output = {.validity = to.validity ? to.validity->as<uint8_t>() : nullptr,
               .values = to.values->data(),
               .text = to.text ? to.text->as<char>() : nullptr,
               .capacity = rows,
               .text_capacity = text_bytes,
               .id = id};
  return to;
}

// Columns are copied some at a time: a call to a server names few ranges.
inline data_frame data_frame::builder::copied(frame::request_view r, int64_t count,
                                              std::span<const int64_t> texts) const {
  constexpr size_t kColumns = 32;
  for (int64_t bytes : texts) {
    if (bytes > std::numeric_limits<int32_t>::max())
      throw std::length_error("farside: a utf8 column has more than 2 GiB of text");
  }
  data_frame made;
  size_t text = 0;
  for (size_t first = 0; first < from_.columns(); first += kColumns) {
    size_t last = std::min(from_.columns(), first + kColumns);
    builder part(from_, where_);
    std::vector<copy_target> targets;
    std::vector<frame::column_output> outputs;
    std::vector<frame::column_view> views;
    for (size_t c = first; c < last; c++) {
      bool is_text = from_[c].type().id == frame::type_id::utf8;
      targets.push_back(make_target(from_[c], count, is_text ? texts[text++] : 0));
      outputs.push_back(targets.back().output);
      views.push_back(from_[c].view());
    }
    r.columns = {.columns = views};
    r.outputs = outputs;
    r.fixed.rows = from_.rows_;
    frame::message reply = frame::query(r).run(count == 0 ? placement::near : where_);
    auto written = first_array<frame::column_output>(reply);
    for (size_t c = first; c < last; c++) {
      copy_target& to = targets[c - first];
      made.add(from_.names_[c],
               column(from_[c].type(), count, written[c - first].nulls, to.validity, to.values, to.text));
    }
  }
  return made;
}

template <typename T, typename State, typename Value>
frame::column data_frame::builder::column_of_states(frame::data_type type, int64_t groups, State state, Value value) {
  frame::column_builder<T> made(std::move(type));
  for (int64_t n = 0; n < groups; n++) {
    const frame::aggregate_state& s = state(n);
    if (s.count == 0) made.append_null();
    else made.append(value(s));
  }
  return std::move(made).finish();
}

template <typename State>
frame::column data_frame::builder::extremes(const frame::data_type& type, int64_t groups, State state) const {
  if (type.id == frame::type_id::boolean)
    return column_of_states<bool>(type, groups, state, [](const auto& s) { return s.extreme != 0; });
  return frame::with_stored_type(type.id, [&](auto zero) {
    using T = decltype(zero);
    return column_of_states<T>(type, groups, state, [](const auto& s) { return frame::from_wide_bits<T>(s.extreme); });
  });
}

template <typename T>
T checked_sum(const frame::aggregate_state& s) {
  if (s.whole < std::numeric_limits<T>::min() || s.whole > std::numeric_limits<T>::max())
    throw std::overflow_error("farside: the sum of integers does not fit into 64 bits");
  return static_cast<T>(s.whole);
}

template <typename State>
frame::column data_frame::builder::aggregated(const aggregate_of& what, const frame::aggregate_spec& spec,
                                              int64_t groups, State state) const {
  using frame::aggregate_op, frame::type_id;
  if (spec.op == aggregate_op::count) {
    frame::column_builder<int64_t> counts;
    for (int64_t n = 0; n < groups; n++) counts.append(state(n).count);
    return std::move(counts).finish();
  }
  frame::data_type type = type_of(spec.program, *what.of);
  if (spec.op == aggregate_op::minimum || spec.op == aggregate_op::maximum) return extremes(type, groups, state);
  bool is_real = type.id == type_id::float32 || type.id == type_id::float64;
  if (spec.op == aggregate_op::mean) {
    return column_of_states<double>({type_id::float64}, groups, state, [&](const auto& s) {
      return (is_real ? s.real + s.correction : static_cast<double>(s.whole)) / static_cast<double>(s.count);
    });
  }
  if (type.id == type_id::date32 || type.id == type_id::timestamp)
    throw std::invalid_argument("farside: aggregate " + what.name + ": dates and timestamps have no sum");
  if (is_real) {
    return column_of_states<double>({type_id::float64}, groups, state,
                                    [](const auto& s) { return s.real + s.correction; });
  }
  if (type.id >= type_id::uint8 && type.id <= type_id::uint64)
    return column_of_states<uint64_t>({type_id::uint64}, groups, state, checked_sum<uint64_t>);
  return column_of_states<int64_t>({type_id::int64}, groups, state, checked_sum<int64_t>);
}

inline data_frame data_frame::with(std::string name, const expression& value, placement where) const {
  using frame::buffer;
  builder b(*this, where);
  int32_t what = b.bind(value);
  data_frame made = *this;
  if (b.program(what).column >= 0) {
    made.add(std::move(name), (*this)[value.nodes()[0].text]);
    return made;
  }
  frame::type_id id = b.program(what).result;
  bool is_boolean = id == frame::type_id::boolean;
  auto validity = buffer::create(frame::bitmap_bytes(rows_));
  auto values = buffer::create(is_boolean ? frame::bitmap_bytes(rows_) : rows_ * 8);
  std::vector<frame::column_output> to = {
      {.validity = validity->as<uint8_t>(), .values = values->data(), .capacity = rows_, .id = id}};
  frame::message reply = b.run({.fixed = {.op = frame::operation::compute, .what = what}, .outputs = to});
  made.add(std::move(name), column({id}, rows_, builder::first_array<int64_t>(reply)[0], validity, values));
  return made;
}

inline data_frame data_frame::filter(const expression& condition, placement where) const {
  builder b(*this, where);
  auto bitmap = frame::buffer::create(frame::bitmap_bytes(rows_));
  frame::order o = {
      .op = frame::operation::select, .where = b.bind_condition(condition), .bitmap = bitmap->as<uint64_t>()};
  std::vector<int32_t> texts = b.bind_texts();
  frame::message reply = b.run({.fixed = o, .keys = texts});
  auto counts = builder::first_array<int64_t>(reply);
  o.op = frame::operation::copy_selected;
  return b.copied({.fixed = o}, counts[0], counts.subspan(1));
}

inline data_frame data_frame::take(const std::vector<int64_t>& rows, placement where) const {
  return take_rows(column::of<int64_t>(rows), where);
}

inline data_frame data_frame::take_rows(const column& rows, placement where) const {
  if (rows.type().id != frame::type_id::int64 || rows.nulls() > 0)
    throw std::invalid_argument("farside: the rows to take are no int64 column without nulls");
  for (int64_t row : std::span(rows.view().as<int64_t>(), static_cast<size_t>(rows.rows()))) {
    if (row < 0 || row >= rows_) throw std::out_of_range("farside: a row to take is not in the data frame");
  }
  return picked(rows, where);
}

inline data_frame data_frame::picked(const column& rows, placement where) const {
  builder b(*this, where);
  frame::order o = {
      .op = frame::operation::measure_picked, .picks = rows.view().as<int64_t>(), .pick_count = rows.rows()};
  std::vector<int32_t> texts = b.bind_texts();
  frame::message reply;
  std::span<const int64_t> text_bytes;
  if (!texts.empty()) {
    reply = b.run({.fixed = o, .keys = texts});
    text_bytes = builder::first_array<int64_t>(reply);
  }
  o.op = frame::operation::copy_picked;
  return b.copied({.fixed = o}, rows.rows(), text_bytes);
}

inline data_frame data_frame::aggregate(const std::vector<aggregate_of>& what, const optional_expression& condition,
                                        placement where) const {
  builder b(*this, where);
  frame::order o = {.op = frame::operation::aggregate, .where = b.bind_condition(condition)};
  std::vector<frame::aggregate_spec> specs = b.bind_aggregates(what);
  frame::message reply = b.run({.fixed = o, .aggregates = specs});
  auto states = builder::first_array<frame::aggregate_state>(reply);
  data_frame made;
  for (size_t a = 0; a < what.size(); a++)
    made.add(what[a].name, b.aggregated(
                               what[a], specs[a], 1, [&](int64_t) -> auto& { return states[a]; }));
  return made;
}

// Columns of keys, from the words of their tuples.
inline frame::column key_column(const frame::data_type& type, size_t k, size_t width, std::span<const uint64_t> tuples,
                                std::span<const size_t> text_ends, std::string_view text) {
  auto fill = [&](auto made, auto value_of) {
    for (size_t at = 0; at < tuples.size(); at += width) {
      if (tuples[at + width - 1] >> k & 1) made.append_null();
      else made.append(value_of(tuples[at + k]));
    }
    return std::move(made).finish();
  };
  if (type.id == frame::type_id::utf8) {
    return fill(frame::column_builder<std::string_view>(), [&](uint64_t n) {
      size_t begin = n == 0 ? 0 : text_ends[n - 1];
      return text.substr(begin, text_ends[n] - begin);
    });
  }
  if (type.id == frame::type_id::boolean) return fill(frame::column_builder<bool>(), [](uint64_t n) { return n != 0; });
  return frame::with_stored_type(type.id, [&](auto zero) {
    using T = decltype(zero);
    return fill(frame::column_builder<T>(type), [](uint64_t n) { return frame::from_wide_bits<T>(n); });
  });
}

inline data_frame data_frame::group_by(const std::vector<key>& keys, const std::vector<aggregate_of>& what,
                                       const optional_expression& condition, placement where) const {
  if (keys.empty() || keys.size() > 64) throw std::invalid_argument("farside: group_by takes 1 to 64 keys");
  builder b(*this, where);
  frame::order o = {.op = frame::operation::group, .where = b.bind_condition(condition)};
  std::vector<int32_t> programs;
  programs.reserve(keys.size());
  for (const key& k : keys) programs.push_back(b.bind(k.of));
  std::vector<frame::aggregate_spec> specs = b.bind_aggregates(what);
  frame::message reply = b.run({.fixed = o, .keys = programs, .aggregates = specs});
  frame::unpacker in(reply);
  auto tuples = in.get<uint64_t>();
  auto states = in.get<frame::aggregate_state>();
  size_t width = keys.size() + 1;
  auto groups = static_cast<int64_t>(tuples.size() / width);
  data_frame made;
  for (size_t k = 0; k < keys.size(); k++) {
    auto ends = in.get<size_t>();
    auto text = in.get<char>();
    made.add(keys[k].name,
             key_column(b.type_of(programs[k], keys[k].of), k, width, tuples, ends, {text.data(), text.size()}));
  }
  for (size_t a = 0; a < what.size(); a++) {
    made.add(what[a].name, b.aggregated(
                               what[a], specs[a], groups, [&](int64_t n) -> auto& {
                                 return states[static_cast<size_t>(n) * what.size() + a];
                               }));
  }
  return made;
}

inline data_frame data_frame::top_k(size_t k, const expression& value, order by, const optional_expression& condition,
                                    placement where) const {
  builder b(*this, where);
  frame::order o = {.op = frame::operation::rank, .is_descending = by == order::descending};
  o.where = b.bind_condition(condition);
  o.what = b.bind(value);
  o.k = static_cast<int64_t>(std::min(k, rows()));
  if (b.program(o.what).result == frame::type_id::utf8)
    throw std::invalid_argument("farside: top_k by a utf8 column is not supported");
  frame::message reply = b.run({.fixed = o});
  auto best = builder::first_array<int64_t>(reply);
  return take({best.begin(), best.end()}, where);
}

inline data_frame data_frame::join(const data_frame& small, const std::vector<std::string>& on,
                                   const std::vector<std::string>& small_on, placement where) const {
  const std::vector<std::string>& small_names = small_on.empty() ? on : small_on;
  if (on.empty() || on.size() > 64 || on.size() != small_names.size())
    throw std::invalid_argument("farside: join takes 1 to 64 keys, as many of both tables");
  builder b(*this, where);
  frame::plan small_plan;
  std::vector<int32_t> keys, small_keys;
  for (size_t k = 0; k < on.size(); k++) {
    frame::type_id id = (*this)[on[k]].type().id;
    if (id != small[small_names[k]].type().id)
      throw std::invalid_argument("farside: key " + on[k] + " of a join has another type in the small table");
    keys.push_back(b.bind(frame::col(on[k])));
    small_keys.push_back(builder::bind(small_plan, small, frame::col(small_names[k])));
  }
  frame::request_view r = {.fixed = {.op = frame::operation::join, .small_rows = small.rows_},
                           .small = small_plan.view(),
                           .keys = keys,
                           .small_keys = small_keys};
  frame::message reply = b.run(r);  // counts
  auto pairs = static_cast<size_t>(builder::first_array<int64_t>(reply)[0]);
  auto big_rows = frame::buffer::create(static_cast<int64_t>(pairs * 8));
  auto small_rows = frame::buffer::create(static_cast<int64_t>(pairs * 8));
  r.fixed.big_out = big_rows->as<int64_t>();
  r.fixed.small_out = small_rows->as<int64_t>();
  if (pairs > 0) b.run(r, {{r.fixed.big_out, pairs}, {r.fixed.small_out, pairs}});
  auto count = static_cast<int64_t>(pairs);
  data_frame made = picked(column({}, count, 0, nullptr, big_rows), where);
  data_frame others = small.picked(column({}, count, 0, nullptr, small_rows), where);
  for (size_t c = 0; c < others.columns(); c++) {
    const std::string& name = others.names_[c];
    if (std::find(small_names.begin(), small_names.end(), name) == small_names.end()) made.add(name, others[c]);
  }
  return made;
}

inline void data_frame::export_arrow(ArrowSchema* schema, ArrowArray* array) const {
  frame::export_record_batch(names_, columns_, rows_, schema, array);
}

inline data_frame data_frame::import_arrow(ArrowSchema* schema, ArrowArray* array) {
  data_frame made;
  frame::import_record_batch(schema, array, [&](std::string name, column c, int64_t rows) {
    made.rows_ = rows;
    made.add(std::move(name), std::move(c));
  });
  return made;
}

}  // namespace farside
#endif
