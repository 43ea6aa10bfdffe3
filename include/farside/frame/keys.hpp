// Tables of keys, for groups and joins: a tuple of values becomes a number, counted from 0 in order of appearance.
// Programs do not name these.
#ifndef FARSIDE_FRAME_KEYS_HPP
#define FARSIDE_FRAME_KEYS_HPP

#include <farside/frame/aggregate.hpp>

namespace farside::frame {

inline uint64_t mix_hash(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15;
  return h ^ h >> 29;
}

// Numbers that were found by hash, in an open-addressed table. The owner compares and stores the keys.
class hash_index {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // is_same(n): whether number n has the key of this hash.
  template <typename Same>
  uint32_t find(uint64_t hash, Same is_same) const {
    for (size_t at = hash;; at++) {
      uint32_t n = slots_[at & (slots_.size() - 1)];
      if (n == kNone || is_same(n)) return n;
    }
  }
  // hash_of(n): the hash of a number that was added before.
  template <typename Hash>
  void add(uint64_t hash, uint32_t n, Hash hash_of) {
    if ((used_ + 1) * 2 > slots_.size()) grow(hash_of);
    place(hash, n);
    used_++;
  }

 private:
  void place(uint64_t hash, uint32_t n) {
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = n;
  }
  template <typename Hash>
  void grow(Hash hash_of) {
    std::vector<uint32_t> before(slots_.size() * 2, kNone);
    before.swap(slots_);
    for (uint32_t n : before) {
      if (n != kNone) place(hash_of(n), n);
    }
  }

  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64, kNone);
  size_t used_ = 0;
};

// Distinct texts.
class text_table {
 public:
  uint32_t find(std::string_view text) const {
    return index_.find(hash_of(text), [&](uint32_t n) { return at(n) == text; });
  }
  uint32_t find_or_add(std::string_view text) {
    uint32_t found = find(text);
    if (found != hash_index::kNone) return found;
    auto n = static_cast<uint32_t>(ends_.size());
    bytes_ += text;
    ends_.push_back(bytes_.size());
    index_.add(hash_of(text), n, [&](uint32_t other) { return hash_of(at(other)); });
    return n;
  }
  std::string_view at(uint32_t n) const {
    size_t begin = n == 0 ? 0 : ends_[n - 1];
    return std::string_view(bytes_).substr(begin, ends_[n] - begin);
  }
  // All texts, one after another, and where each ends.
  const std::string& bytes() const { return bytes_; }
  const std::vector<size_t>& ends() const { return ends_; }

 private:
  static uint64_t hash_of(std::string_view text) {
    uint64_t hash = text.size();
    for (; text.size() >= 8; text.remove_prefix(8)) hash = mix_hash(hash ^ word_at(text.data(), 0));
    uint64_t rest = 0;
    if (!text.empty()) std::memcpy(&rest, text.data(), text.size());
    return mix_hash(hash ^ rest);
  }

  hash_index index_;
  std::string bytes_;
  std::vector<size_t> ends_;
};

// Tuples of values. A tuple has one word for each value, and one whose bit k is set where value k is null.
class key_table {
 public:
  explicit key_table(size_t values) : words_(values + 1), texts_(values) {}

  size_t size() const { return keys_.size() / words_; }
  size_t values() const { return words_ - 1; }
  const uint64_t* at(uint32_t n) const { return &keys_[n * words_]; }
  text_table& texts(size_t value) { return texts_[value]; }
  const text_table& texts(size_t value) const { return texts_[value]; }

  uint32_t find(const uint64_t* key) const {
    return index_.find(hash_of(key), [&](uint32_t n) { return std::equal(key, key + words_, at(n)); });
  }
  uint32_t find_or_add(const uint64_t* key) {
    uint32_t found = find(key);
    if (found != hash_index::kNone) return found;
    if (size() >= hash_index::kNone) throw std::length_error("farside: there are more than 2^32 - 1 keys");
    auto n = static_cast<uint32_t>(size());
    keys_.insert(keys_.end(), key, key + words_);
    index_.add(hash_of(key), n, [&](uint32_t other) { return hash_of(at(other)); });
    return n;
  }

 private:
  uint64_t hash_of(const uint64_t* key) const {
    uint64_t hash = 0;
    for (size_t w = 0; w < words_; w++) hash = mix_hash(hash ^ key[w]);
    return hash;
  }

  size_t words_;
  hash_index index_;
  std::vector<uint64_t> keys_;
  std::vector<text_table> texts_;
};

// The numbers of keys that were looked up lately, for tables with one key: most tables have few.
class key_cache {
 public:
  // look_up(): the key's number in the table.
  template <typename LookUp>
  uint32_t get(const uint64_t* key, LookUp look_up) {
    entry& e = entries_[(key[0] ^ key[0] >> 8 ^ key[0] >> 52) % entries_.size()];
    if (!e.is_used || e.value != key[0] || e.nulls != key[1]) e = {key[0], key[1], look_up(), true};
    return e.number;
  }

 private:
  struct entry {
    uint64_t value, nulls;
    uint32_t number;
    bool is_used = false;
  };
  std::array<entry, 256> entries_ = {};
};

// The word of a key's value. Equal values have equal words, also NaNs, and 0 and -0.
template <typename T>
uint64_t key_word(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
    return wide_bits(static_cast<double>(value) + 0.0);
  } else {
    return wide_bits(value);
  }
}

// Reads the keys of rows, batch by batch.
class key_reader {
 public:
  key_reader(const plan_view& p, std::span<const int32_t> programs) : width_(programs.size() + 1) {
    for (int32_t program : programs) inputs_.emplace_back(p, program);
  }

  // Fills in the tuples of the selected rows. intern(value, text): the number of a text in the table.
  template <typename Intern>
  void read(int64_t begin, int64_t n, const row_bits& selected, Intern intern) {
    tuples_.resize(static_cast<size_t>(kBatchRows) * width_);
    for_each_set(selected, [&](size_t i) { tuple(i)[width_ - 1] = 0; });
    for (size_t k = 0; k < inputs_.size(); k++) read_value(k, begin, n, selected, intern);
  }
  uint64_t* tuple(size_t row) { return &tuples_[row * width_]; }
  bool has_null(size_t row) { return tuple(row)[width_ - 1] != 0; }

 private:
  template <typename Intern>
  void read_value(size_t k, int64_t begin, int64_t n, const row_bits& selected, Intern intern) {
    row_bits rows = selected;
    inputs_[k](begin, n, rows,
               [&](const auto* values) { for_each_set(rows, [&](size_t i) { tuple(i)[k] = key_word(values[i]); }); });
    const column_view* column = inputs_[k].column();
    if (column && column->id == type_id::utf8)
      for_each_set(rows, [&](size_t i) { tuple(i)[k] = intern(k, column->text_at(begin + static_cast<int64_t>(i))); });
    for (size_t w = 0; w < rows.words.size(); w++) {
      for_each_set(selected.words[w] & ~rows.words[w], w * 64, [&](size_t i) {
        tuple(i)[k] = 0;
        tuple(i)[width_ - 1] |= uint64_t{1} << k;
      });
    }
  }

  size_t width_;
  std::vector<batch_input> inputs_;
  std::vector<uint64_t> tuples_;
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
    reader_.read(begin, n, selected,
                 [&](size_t k, std::string_view text) { return table_.texts(k).find_or_add(text); });
    for_each_set(selected, [&](size_t i) { groups_[i] = group_of(reader_.tuple(i)); });
    states_.resize(table_.size() * specs_.size());
    for (size_t a = 0; a < specs_.size(); a++) add(a, begin, n, selected);
  }
  uint32_t group_of(const uint64_t* key) {
    auto look_up = [&] { return table_.find_or_add(key); };
    return table_.values() == 1 ? cache_.get(key, look_up) : look_up();
  }
  void add(size_t a, int64_t begin, int64_t n, row_bits rows) {
    aggregate_op op = specs_[a].op;
    auto state_of = [&](size_t i) -> aggregate_state& { return states_[groups_[i] * specs_.size() + a]; };
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
  key_cache cache_;
  std::span<const aggregate_spec> specs_;
  std::vector<batch_input> inputs_;
  std::array<uint32_t, kBatchRows> groups_;
  std::vector<aggregate_state> states_;
};

// The rows of a small table by key.
class join_table {
 public:
  // Reads all rows of a small table. Rows with a null in their key match nothing.
  join_table(const plan_view& small, std::span<const int32_t> keys, int64_t rows) : table_(keys.size()) {
    key_reader reader(small, keys);
    next_.resize(static_cast<size_t>(rows), -1);
    for_each_batch(0, rows, [&](int64_t begin, int64_t n) {
      reader.read(begin, n, first_rows(n),
                  [&](size_t k, std::string_view t) { return table_.texts(k).find_or_add(t); });
      for (int64_t i = 0; i < n; i++) add(reader, i, begin + i);
    });
  }
  // Calls f(row, row of the small table) for the pairs with equal keys, in order of both. Rows without a partner are
  // left out.
  template <typename F>
  void probe(key_reader& reader, key_cache& cache, int64_t begin, int64_t n, const row_bits& selected, F f) const {
    reader.read(begin, n, selected, [&](size_t k, std::string_view text) -> uint64_t {
      uint32_t found = table_.texts(k).find(text);
      return found == hash_index::kNone ? ~uint64_t{0} : found;  // a number that no text has
    });
    for_each_set(selected, [&](size_t i) {
      if (reader.has_null(i)) return;
      auto look_up = [&] { return table_.find(reader.tuple(i)); };
      uint32_t found = table_.values() == 1 ? cache.get(reader.tuple(i), look_up) : look_up();
      if (found == hash_index::kNone) return;
      for (int64_t row = first_[found]; row >= 0; row = next_[static_cast<size_t>(row)])
        f(begin + static_cast<int64_t>(i), row);
    });
  }

 private:
  void add(key_reader& reader, int64_t i, int64_t row) {
    if (reader.has_null(static_cast<size_t>(i))) return;
    uint32_t n = table_.find_or_add(reader.tuple(static_cast<size_t>(i)));
    if (n == first_.size()) {
      first_.push_back(row);
      last_.push_back(row);
    } else {
      next_[static_cast<size_t>(last_[n])] = row;
      last_[n] = row;
    }
  }

  key_table table_;
  std::vector<int64_t> first_, last_;  // rows of each key
  std::vector<int64_t> next_;          // the next row of the same key, or -1
};

}  // namespace farside::frame
#endif
