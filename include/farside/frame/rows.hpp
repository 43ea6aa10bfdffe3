// Operators whose result has rows: selections, computed columns, copies of rows, the rows of the largest values, pairs
// of joined rows. Programs do not name these.
#ifndef FARSIDE_FRAME_ROWS_HPP
#define FARSIDE_FRAME_ROWS_HPP

#include <farside/frame/keys.hpp>

namespace farside::frame {

// Where an operator writes a column. The buffers have room for the rows that will be written, and are all zero.
struct column_output {
  uint8_t* validity = nullptr;  // null: the column has no nulls
  void* values = nullptr;
  char* text = nullptr;
  int64_t rows = 0, text_bytes = 0, nulls = 0;  // written so far
  int64_t capacity = 0, text_capacity = 0;      // rows and bytes that there is room for
  type_id id = type_id::int64;
};

// Sets bit i of `bitmap` for each selected row i of [begin, end), and returns how many there are.
inline int64_t select_rows(const plan_view& p, int32_t where, int64_t begin, int64_t end, uint64_t* bitmap) {
  selector selected(p, where);
  int64_t count = 0;
  for_each_batch(begin, end, [&](int64_t first, int64_t n) {
    row_bits rows = selected(first, n);
    std::copy_n(rows.words.begin(), words_of(n), bitmap + first / 64);
    count += count_of(rows);
  });
  return count;
}

// Writes the values of program `what` for rows [begin, end), each at its own row.
class computation {
 public:
  computation(const plan_view& p, int32_t what, const column_output& to) : input_(p, what), to_(to) {
    is_boolean_ = p.programs[static_cast<size_t>(what)].result == type_id::boolean;
  }
  void rows(int64_t begin, int64_t end) {
    for_each_batch(begin, end, [&](int64_t first, int64_t n) { batch(first, n); });
  }
  int64_t nulls() const { return to_.nulls; }

 private:
  void batch(int64_t begin, int64_t n) {
    row_bits valid = first_rows(n);
    input_(begin, n, valid, [&](const auto* values) { write(values, begin, n); });
    to_.nulls += n - count_of(valid);
    std::memcpy(to_.validity + begin / 8, valid.words.data(), words_of(n) * 8);
  }
  template <typename T>
  void write(const T* values, int64_t begin, int64_t n) {
    if (is_boolean_) {
      auto* words = static_cast<uint64_t*>(to_.values) + begin / 64;
      collect_bits(words, n, [&](int64_t i) { return values[i] != T{}; });
    } else {
      std::memcpy(static_cast<T*>(to_.values) + begin, values, static_cast<size_t>(n) * sizeof(T));
    }
  }

  batch_input input_;
  column_output to_;
  bool is_boolean_;
};

// A row to copy, and its place in the output.
struct placed_row {
  int64_t row, at;
};

// Copies rows of a column to the end of an output, one after another; or, with copy_placed, each to its own place.
class row_copier {
 public:
  row_copier(const column_view& from, column_output& to) : from_(from), to_(to) {}

  // In the order of `rows`, which the caller has checked.
  void copy(std::span<const int64_t> rows) {
    if (from_.id == type_id::utf8) copy_texts(rows);
    else if (from_.id == type_id::boolean) copy_bits(rows);
    else with_width([&](auto zero) { copy_values(zero, rows); });
  }
  // Not of utf8 columns.
  void copy_placed(std::span<const placed_row> rows) {
    for (const placed_row& r : rows) {
      copy_validity(r.row, r.at);
      if (from_.id == type_id::boolean && from_.bit(r.row)) set_bit(static_cast<uint8_t*>(to_.values), r.at);
    }
    if (from_.id != type_id::boolean) {
      with_width([&](auto zero) {
        using T = decltype(zero);
        for (const placed_row& r : rows) static_cast<T*>(to_.values)[r.at] = from_.as<T>()[r.row];
      });
    }
    to_.rows += static_cast<int64_t>(rows.size());
  }

 private:
  template <typename F>
  void with_width(F f) {
    switch (width_of(from_.id)) {
      case 1:
        return f(uint8_t{});
      case 2:
        return f(uint16_t{});
      case 4:
        return f(uint32_t{});
      default:
        return f(uint64_t{});
    }
  }
  template <typename T>
  void copy_values(T, std::span<const int64_t> rows) {
    const T* from = from_.as<T>();
    T* to = static_cast<T*>(to_.values) + to_.rows;
    for (size_t i = 0; i < rows.size(); i++) to[i] = from[rows[i]];
    if (from_.validity) {
      for (size_t i = 0; i < rows.size(); i++) copy_validity(rows[i], to_.rows + static_cast<int64_t>(i));
    }
    to_.rows += static_cast<int64_t>(rows.size());
  }
  void copy_bits(std::span<const int64_t> rows) {
    for (int64_t row : rows) {
      copy_validity(row, to_.rows);
      if (from_.bit(row)) set_bit(static_cast<uint8_t*>(to_.values), to_.rows);
      to_.rows++;
    }
  }
  void copy_texts(std::span<const int64_t> rows) {
    auto* offsets = static_cast<int32_t*>(to_.values);
    for (int64_t row : rows) {
      copy_validity(row, to_.rows);
      std::string_view text = from_.text_at(row);
      if (!text.empty()) std::memcpy(to_.text + to_.text_bytes, text.data(), text.size());
      to_.text_bytes += static_cast<int64_t>(text.size());
      offsets[++to_.rows] = static_cast<int32_t>(to_.text_bytes);
    }
  }
  void copy_validity(int64_t row, int64_t at) {
    if (!from_.validity) return;
    if (from_.is_valid(row)) set_bit(to_.validity, at);
    else to_.nulls++;
  }

  const column_view& from_;
  column_output& to_;
};

// Calls each(row) for the set bits of rows [begin, end); begin is a multiple of 64.
template <typename Each>
void for_each_selected(const uint64_t* bitmap, int64_t begin, int64_t end, Each each) {
  for (int64_t first = begin; first < end; first += 64)
    for_each_set(bitmap[first / 64], static_cast<size_t>(first), [&](size_t row) { each(static_cast<int64_t>(row)); });
}

// A row and its value, in the order of top k: the best value first, rows with the same value in their own order.
struct ranked_row {
  uint64_t order;
  int64_t row;
  bool operator<(const ranked_row& other) const { return order != other.order ? order < other.order : row < other.row; }
};

// The rows of the k smallest or largest values of program `what`. Nulls are left out.
class ranking {
 public:
  ranking(const plan_view& p, int32_t where, int32_t what, int64_t k, bool is_descending)
      : where_(p, where), input_(p, what), k_(static_cast<size_t>(k)), flip_(is_descending ? ~uint64_t{0} : 0) {}
  void rows(int64_t begin, int64_t end) {
    if (k_ == 0) return;
    for_each_batch(begin, end, [&](int64_t first, int64_t n) {
      row_bits selected = where_(first, n);
      input_(first, n, selected, [&](const auto* values) {
        if (best_.size() == k_) keep_better(values, n, selected);
        for_each_set(selected, [&](size_t i) {
          add({ordered_bits(values[i]) ^ flip_, first + static_cast<int64_t>(i)});
        });
      });
    });
  }
  // Best first.
  std::vector<int64_t> result() {
    std::sort_heap(best_.begin(), best_.end());
    std::vector<int64_t> made;
    for (const ranked_row& r : best_) made.push_back(r.row);
    best_.clear();
    return made;
  }

 private:
  // Removes rows that are not better than the worst of the best: nearly all, after a while. NaNs may stay.
  template <typename T>
  void keep_better(const T* values, int64_t n, row_bits& rows) const {
    T worst = from_ordered_bits<T>(best_.front().order ^ flip_);
    row_bits better;
    auto compare = [&](auto is_worse) {
      if constexpr (std::is_floating_point_v<T>) {
        double limit = worst;
        collect_masks(better.words.data(), n, [&](size_t i) { return ~is_worse(two_at(values + i), limit); });
      } else {
        collect_bits(better.words.data(), n, [&](int64_t i) { return !is_worse(values[i], worst); });
      }
    };
    if (flip_) compare([](auto value, auto limit) { return value <= limit; });
    else compare([](auto value, auto limit) { return value >= limit; });
    for (size_t w = 0; w < words_of(n); w++) rows.words[w] &= better.words[w];
  }
  void add(ranked_row r) {
    if (best_.size() == k_) {
      if (!(r < best_.front())) return;
      std::pop_heap(best_.begin(), best_.end());
      best_.pop_back();
    }
    best_.push_back(r);
    std::push_heap(best_.begin(), best_.end());
  }

  selector where_;
  batch_input input_;
  size_t k_;
  uint64_t flip_;
  std::vector<ranked_row> best_;  // a heap, the worst row first
};

// Pairs of rows with equal keys. Without outputs they are only counted.
class joining {
 public:
  joining(const plan_view& big, std::span<const int32_t> keys, const join_table& small, int64_t* big_rows,
          int64_t* small_rows)
      : reader_(big, keys), small_(small), big_rows_(big_rows), small_rows_(small_rows) {}
  void rows(int64_t begin, int64_t end) {
    for_each_batch(begin, end, [&](int64_t first, int64_t n) {
      small_.probe(reader_, first, n, first_rows(n), [&](int64_t row, int64_t partner) {
        if (big_rows_) big_rows_[count_] = row, small_rows_[count_] = partner;
        count_++;
      });
    });
  }
  int64_t count() const { return count_; }

 private:
  key_reader reader_;
  const join_table& small_;
  int64_t *big_rows_, *small_rows_;
  int64_t count_ = 0;
};

}  // namespace farside::frame
#endif
