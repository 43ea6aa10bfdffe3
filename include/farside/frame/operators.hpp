// The operators as requests: values that are executed near or, as bytes, by a memory server, by the same functions.
// Programs do not name these.
#ifndef FARSIDE_FRAME_OPERATORS_HPP
#define FARSIDE_FRAME_OPERATORS_HPP

#include <farside/frame/groups.hpp>
#include <farside/frame/rows.hpp>

namespace farside::frame {

enum class operation : uint8_t {
  select,  // which rows, how many, and how much text they have in the columns `keys`
  copy_selected,
  measure_picked,  // how much text the picked rows have in the columns `keys`
  copy_picked,
  compute,
  aggregate,
  group,
  rank,
  join,
};

// The fixed part of a request. Pointers are to far memory.
struct order {
  operation op;
  bool is_descending = false;      // rank
  int32_t where = -1, what = -1;   // programs: the condition; the value of compute and rank
  int64_t rows = 0;                // of the plan's columns
  int64_t small_rows = 0;          // join
  int64_t k = 0;                   // rank
  uint64_t* bitmap = nullptr;      // written by select, read by copy_selected
  const int64_t* picks = nullptr;  // copy_picked: rows, in the order of the result
  int64_t pick_count = 0;
  int64_t *big_out = nullptr, *small_out = nullptr;  // join: pairs of rows; null: count only
};

struct request_view {
  order fixed;
  plan_view columns = {}, small = {};  // small: join's second table
  std::span<const int32_t> keys = {}, small_keys = {};
  std::span<const aggregate_spec> aggregates = {};
  std::span<column_output> outputs = {};  // copies: of each column; compute: one
};

// ---- Arrays of trivially copyable values as bytes ----

using message = std::vector<char>;

class packer {
 public:
  template <typename T>
  packer& add(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlign);
    size_t header = made_.size();
    made_.resize(header + kAlign + (values.size_bytes() + kAlign - 1) / kAlign * kAlign);
    uint64_t count = values.size();
    std::memcpy(made_.data() + header, &count, sizeof count);
    if (count > 0) std::memcpy(made_.data() + header + kAlign, values.data(), values.size_bytes());
    return *this;
  }
  template <typename T>
  packer& add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  template <typename T>
  packer& add_value(const T& value) {
    return add(std::span<const T>(&value, 1));
  }
  packer& add_plan(const plan_view& p) {
    return add(p.columns).add(p.code).add(p.programs).add(std::span<const char>(p.texts));
  }
  message take() { return std::move(made_); }

  static constexpr size_t kAlign = 16;  // as that of what vector allocates

 private:
  message made_;
};

// The arrays stay in the bytes.
class unpacker {
 public:
  explicit unpacker(message& from) : at_(from.data()) {}
  template <typename T>
  std::span<T> get() {
    uint64_t count;
    std::memcpy(&count, at_, sizeof count);
    auto* first = reinterpret_cast<T*>(at_ + packer::kAlign);
    at_ += packer::kAlign + (count * sizeof(T) + packer::kAlign - 1) / packer::kAlign * packer::kAlign;
    return {first, count};
  }
  plan_view get_plan() {
    plan_view p;
    p.columns = get<column_view>();
    p.code = get<instruction>();
    p.programs = get<program>();
    auto texts = get<char>();
    p.texts = {texts.data(), texts.size()};
    return p;
  }

 private:
  char* at_;
};

inline message encode(const request_view& r) {
  return packer()
      .add_value(r.fixed)
      .add_plan(r.columns)
      .add_plan(r.small)
      .add(r.keys)
      .add(r.small_keys)
      .add(r.aggregates)
      .add(std::span<const column_output>(r.outputs))
      .take();
}
inline request_view decode(message& from) {
  unpacker in(from);
  request_view r{.fixed = in.get<order>()[0]};
  r.columns = in.get_plan();
  r.small = in.get_plan();
  r.keys = in.get<int32_t>();
  r.small_keys = in.get<int32_t>();
  r.aggregates = in.get<aggregate_spec>();
  r.outputs = in.get<column_output>();
  return r;
}

// ---- What each operator replies ----

// The groups' keys and aggregates, as arrays: tuples, states, and the texts that tuples refer to, for each utf8 key.
inline message encode_groups(const grouping& g, size_t keys, size_t aggregates) {
  std::vector<uint64_t> tuples;
  std::vector<aggregate_state> states;
  for (uint32_t n = 0; n < g.keys().size(); n++) {
    tuples.insert(tuples.end(), g.keys().at(n), g.keys().at(n) + keys + 1);
    for (size_t a = 0; a < aggregates; a++) states.push_back(g.state(n, a));
  }
  packer made;
  made.add(tuples).add(states);
  for (size_t k = 0; k < keys; k++)
    made.add(g.keys().texts(k).ends()).add(std::span<const char>(g.keys().texts(k).bytes()));
  return made.take();
}

// drive(columns, rows, f) calls f(begin, end) for consecutive parts of the rows; parts begin at multiples of
// kBatchRows.
template <typename Drive>
class executor {
 public:
  executor(const request_view& r, Drive drive) : r_(r), fixed_(r.fixed), drive_(drive) {}

  message run() {
    switch (fixed_.op) {
      case operation::select:
        return select();
      case operation::copy_selected:
        return copy_selected();
      case operation::measure_picked:
        return measure_picked();
      case operation::copy_picked:
        return copy_picked();
      case operation::compute:
        return compute();
      case operation::aggregate:
        return aggregate();
      case operation::group:
        return group();
      case operation::rank:
        return rank();
      case operation::join:
        return join();
    }
    return {};
  }

 private:
  template <typename Job>
  void drive(Job& job) {
    drive_(r_.columns.columns, fixed_.rows, [&](int64_t begin, int64_t end) { job.rows(begin, end); });
  }
  const column_view& key_column(size_t k) const {
    return r_.columns.columns[static_cast<size_t>(r_.columns.programs[static_cast<size_t>(r_.keys[k])].column)];
  }
  message select() {
    std::vector<int64_t> counts(1 + r_.keys.size());
    drive_(r_.columns.columns, fixed_.rows, [&](int64_t begin, int64_t end) {
      counts[0] += select_rows(r_.columns, fixed_.where, begin, end, fixed_.bitmap);
      for (size_t k = 0; k < r_.keys.size(); k++) {
        for_each_selected(fixed_.bitmap, begin, end, [&](int64_t row) {
          counts[1 + k] += static_cast<int64_t>(key_column(k).text_at(row).size());
        });
      }
    });
    return packer().add(counts).take();
  }
  message measure_picked() {
    std::vector<int64_t> counts(r_.keys.size());
    for (size_t k = 0; k < r_.keys.size(); k++) {
      for (int64_t i = 0; i < fixed_.pick_count; i++)
        counts[k] += static_cast<int64_t>(key_column(k).text_at(fixed_.picks[i]).size());
    }
    return packer().add(counts).take();
  }
  // Near, a column after the other is copied, since each is a stream, and only a few streams are fetched ahead.
  message copy_selected() {
    std::span<const column_view> columns = r_.columns.columns;
    std::vector<row_copier> copiers;
    for (size_t c = 0; c < columns.size(); c++) copiers.emplace_back(columns[c], r_.outputs[c]);
    size_t together = drive_.is_near ? 1 : columns.size();
    for (size_t c = 0; c < columns.size(); c += together) {
      drive_(columns.subspan(c, together), fixed_.rows,
             [&](int64_t begin, int64_t end) { copy_selected(begin, end, std::span(copiers).subspan(c, together)); });
    }
    return packer().add(std::span<const column_output>(r_.outputs)).take();
  }
  // Rows are found once for all columns, and copied without a branch for each. Pieces of 1024 rows take 1.6 times as
  // long.
  void copy_selected(int64_t begin, int64_t end, std::span<row_copier> copiers) {
    constexpr int64_t kPiece = 8 * kBatchRows;
    found_.resize(kPiece);  // not on the stack, which may be that of a fiber
    for (; begin < end; begin += kPiece) {
      size_t count = 0;
      for_each_selected(fixed_.bitmap, begin, std::min(end, begin + kPiece),
                        [&](int64_t row) { found_[count++] = row; });
      for (row_copier& copier : copiers) copier.copy({found_.data(), count});
    }
  }
  message copy_picked() {
    constexpr int64_t kSmall = 1 << 16;  // rows of a column that stays near, whatever the order of the picks
    bool is_ordered = drive_.is_near && fixed_.rows > kSmall;
    std::vector<placed_row> by_row;
    if (is_ordered) by_row = picks_by_row();
    for (size_t c = 0; c < r_.outputs.size(); c++) {
      const column_view& from = r_.columns.columns[c];
      if (is_ordered && from.id != type_id::utf8) {
        copy_in_order_of_rows(from, r_.outputs[c], by_row);
      } else {
        row_copier(from, r_.outputs[c]).copy({fixed_.picks, static_cast<size_t>(fixed_.pick_count)});
      }
    }
    return packer().add(std::span<const column_output>(r_.outputs)).take();
  }
  // Near, each page of the column is fetched once, in order.
  std::vector<placed_row> picks_by_row() const {
    std::vector<placed_row> made;
    for (int64_t i = 0; i < fixed_.pick_count; i++) made.push_back({fixed_.picks[i], i});
    auto before = [](const placed_row& a, const placed_row& b) { return a.row < b.row; };
    if (!std::is_sorted(made.begin(), made.end(), before)) std::sort(made.begin(), made.end(), before);
    return made;
  }
  // Pages are requested ahead where there is about one pick on each.
  void copy_in_order_of_rows(const column_view& from, column_output& to, std::span<const placed_row> picks) {
    constexpr int64_t kRowsOfPage = 512;  // of 8 bytes
    row_copier copier(from, to);
    if (fixed_.pick_count < fixed_.rows / kRowsOfPage) return copier.copy_placed(picks);
    drive_({&from, 1}, fixed_.rows, [&](int64_t, int64_t end) {
      auto behind = std::find_if(picks.begin(), picks.end(), [end](const placed_row& p) { return p.row >= end; });
      auto count = static_cast<size_t>(behind - picks.begin());
      copier.copy_placed(picks.first(count));
      picks = picks.subspan(count);
    });
  }
  message compute() {
    computation job(r_.columns, fixed_.what, r_.outputs[0]);
    drive(job);
    return packer().add_value(job.nulls()).take();
  }
  message aggregate() {
    aggregation job(r_.columns, fixed_.where, r_.aggregates);
    drive(job);
    return packer().add(job.states()).take();
  }
  message group() {
    grouping job(r_.columns, fixed_.where, r_.keys, r_.aggregates);
    drive(job);
    return encode_groups(job, r_.keys.size(), r_.aggregates.size());
  }
  message rank() {
    ranking job(r_.columns, fixed_.where, fixed_.what, fixed_.k, fixed_.is_descending);
    drive(job);
    return packer().add(job.result()).take();
  }
  message join() {
    join_table small(r_.small, r_.small_keys, fixed_.small_rows);
    joining job(r_.columns, r_.keys, small, fixed_.big_out, fixed_.small_out);
    drive(job);
    return packer().add_value(job.count()).take();
  }

  const request_view& r_;
  const order& fixed_;
  Drive drive_;
  std::vector<int64_t> found_;  // selected rows of one piece
};

template <typename Drive>
message execute(const request_view& r, Drive drive) {
  return executor<Drive>(r, drive).run();
}

// On a memory server, all rows at once.
struct whole {
  static constexpr bool is_near = false;
  template <typename F>
  void operator()(std::span<const column_view>, int64_t rows, F f) const {
    f(int64_t{0}, rows);
  }
};

// What a memory server calls.
inline message execute_encoded(const message& encoded) {
  message copy = encoded;
  return execute(decode(copy), whole());
}

}  // namespace farside::frame
#endif
