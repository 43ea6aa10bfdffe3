// Aggregates of groups of rows with equal keys. Programs do not name these; data_frame.hpp has the semantics.
#ifndef FARSIDE_FRAME_GROUPS_HPP
#define FARSIDE_FRAME_GROUPS_HPP

#include <farside/frame/keys.hpp>

namespace farside::frame {

// What the rows of each group of one batch have in common. The groups are few, so a batch is folded first, and the
// aggregates of the whole are changed once for each group.
class few_groups {
 public:
  static constexpr size_t kMax = 64;

  few_groups(const key_reader::numbers& numbers, size_t count) : numbers_(numbers), count_(count) {}

  // combine(Lane, Lane) of start and value_of(i) for the rows i of each group. Four lanes are used in turn, so that the
  // rows of a group do not wait for each other; which one follows from the row's place only.
  template <typename Lane, typename Value, typename Combine>
  std::array<Lane, kMax> fold(const row_bits& rows, Lane start, Value value_of, Combine combine) const {
    std::array<std::array<Lane, kMax>, 4> lanes;
    for (auto& lane : lanes) std::fill_n(lane.begin(), count_, start);
    for_each_set_of_four(rows, [&](size_t i) {
      Lane& lane = lanes[i % 4][numbers_[i]];
      lane = combine(lane, value_of(i));
    });
    std::array<Lane, kMax> all;
    for (size_t g = 0; g < count_; g++)
      all[g] = combine(combine(lanes[0][g], lanes[1][g]), combine(lanes[2][g], lanes[3][g]));
    return all;
  }
  using row_counts = std::array<int64_t, kMax>;
  row_counts counts(const row_bits& rows) const {
    return fold(
        rows, int64_t{0}, [](size_t) { return int64_t{1}; }, kSum);
  }
  // Adds the rows to the aggregates of their groups, but does not count them. state_of(group): its aggregate.
  template <typename T, typename State>
  void add(aggregate_op op, const T* values, const row_bits& rows, const row_counts& counts, State state_of) const {
    if (op == aggregate_op::sum || op == aggregate_op::mean) add_sums(values, rows, counts, state_of);
    else if (op != aggregate_op::count) add_extremes(op == aggregate_op::minimum, values, rows, counts, state_of);
  }

 private:
  template <typename T, typename State>
  void add_sums(const T* values, const row_bits& rows, const row_counts& counts, State state_of) const {
    using whole = std::conditional_t<sizeof(T) < 8, int64_t, int128>;
    using sum = std::conditional_t<std::is_floating_point_v<T>, double, whole>;
    auto sums = fold(
        rows, sum{0}, [values](size_t i) { return static_cast<sum>(values[i]); }, kSum);
    for (size_t g = 0; g < count_; g++) {
      if (counts[g] > 0) state_of(g).add(sums[g]);
    }
  }
  template <typename T, typename State>
  void add_extremes(bool is_minimum, const T* values, const row_bits& rows, const row_counts& counts,
                    State state_of) const {
    uint64_t flip = is_minimum ? 0 : ~uint64_t{0};
    auto extremes = fold(
        rows, ~uint64_t{0}, [&](size_t i) { return ordered_bits(values[i]) ^ flip; },
        [](uint64_t a, uint64_t b) { return std::min(a, b); });
    for (size_t g = 0; g < count_; g++) {
      if (counts[g] > 0) state_of(g).add_extreme(from_ordered_bits<T>(extremes[g] ^ flip), is_minimum);
    }
  }

  const key_reader::numbers& numbers_;
  const size_t count_;
};

// Aggregates of groups of rows with equal keys. Groups are in order of their first rows. Nulls are equal to each other.
class grouping {
 public:
  grouping(const plan_view& p, int32_t where, std::span<const int32_t> keys, std::span<const aggregate_spec> specs)
      : where_(p, where), reader_(p, keys), table_(keys.size()), specs_(specs) {
    for (const aggregate_spec& s : specs) inputs_.emplace_back(p, s.program);
  }
  void rows(int64_t begin, int64_t end) {
    for_each_batch(begin, end, [&](int64_t first, int64_t n) { batch(first, n); });
  }
  const key_table& keys() const { return table_; }
  const aggregate_state& state(uint32_t group, size_t aggregate) const {
    return states_[group * specs_.size() + aggregate];
  }

 private:
  void batch(int64_t begin, int64_t n) {
    row_bits selected = where_(begin, n);
    const key_reader::numbers& groups = reader_(
        begin, n, selected, [&](size_t k, std::string_view text) { return table_.texts(k).find_or_add(text); },
        [&](const uint64_t* key) { return table_.find_or_add(key); });
    states_.resize(table_.size() * specs_.size());
    if (table_.size() <= few_groups::kMax) {
      few_groups few(groups, table_.size());
      few_groups::row_counts counts = few.counts(selected);
      for (size_t a = 0; a < specs_.size(); a++) add_to_few(few, a, begin, n, selected, counts);
    } else {
      for (size_t a = 0; a < specs_.size(); a++) add(groups, a, begin, n, selected);
    }
  }
  void add_to_few(const few_groups& few, size_t a, int64_t begin, int64_t n, const row_bits& selected,
                  few_groups::row_counts counts) {
    row_bits rows = selected;
    auto state_of = [&](size_t g) -> aggregate_state& { return states_[g * specs_.size() + a]; };
    auto count = [&] {
      if (rows.words != selected.words) counts = few.counts(rows);
    };
    bool is_counted = false;
    inputs_[a](begin, n, rows, [&](const auto* values) {
      count();
      is_counted = true;
      few.add(specs_[a].op, values, rows, counts, state_of);
    });
    if (!is_counted) count();
    for (size_t g = 0; g < table_.size(); g++) state_of(g).count += counts[g];
  }
  void add(const key_reader::numbers& groups, size_t a, int64_t begin, int64_t n, row_bits rows) {
    aggregate_op op = specs_[a].op;
    auto state_of = [&](size_t i) -> aggregate_state& { return states_[groups[i] * specs_.size() + a]; };
    inputs_[a](begin, n, rows, [&](const auto* values) {
      if (op == aggregate_op::sum || op == aggregate_op::mean)
        for_each_set(rows, [&](size_t i) { state_of(i).add(values[i]); });
      if (op == aggregate_op::minimum || op == aggregate_op::maximum) {
        for_each_set(rows, [&](size_t i) {
          state_of(i).add_extreme(values[i], op == aggregate_op::minimum);
          state_of(i).count++;
        });
      }
    });
    if (op != aggregate_op::minimum && op != aggregate_op::maximum)
      for_each_set(rows, [&](size_t i) { state_of(i).count++; });
  }

  selector where_;
  key_reader reader_;
  key_table table_;
  std::span<const aggregate_spec> specs_;
  std::vector<batch_input> inputs_;
  std::vector<aggregate_state> states_;
};

}  // namespace farside::frame
#endif
