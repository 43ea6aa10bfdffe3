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
  bool has_null(const uint64_t* key) const { return key[words_ - 1] != 0; }
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

// The numbers of words that were looked up lately. Not on the stack, which may be that of a fiber.
class number_cache {
 public:
  // The cache is empty: no entry has a word whose place it is.
  number_cache() { words_[0] = 1; }

  // look_up(word): its number.
  template <typename LookUp>
  uint32_t get(uint64_t word, LookUp look_up) {
    size_t at = (word ^ word >> 8 ^ word >> 52) % kEntries;
    if (words_[at] != word) {
      numbers_[at] = look_up(word);
      words_[at] = word;
    }
    return numbers_[at];
  }

 private:
  static constexpr size_t kEntries = 4096;
  std::vector<uint64_t> words_ = std::vector<uint64_t>(kEntries);
  std::vector<uint32_t> numbers_ = std::vector<uint32_t>(kEntries);
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

// Numbers the keys of rows, batch by batch.
class key_reader {
 public:
  using numbers = std::array<uint32_t, kBatchRows>;  // of selected rows; the others are undefined

  key_reader(const plan_view& p, std::span<const int32_t> programs) : width_(programs.size() + 1) {
    for (int32_t program : programs) inputs_.emplace_back(p, program);
  }

  // look_up(tuple): the number of a key, always the same one; it is called for rows in their order. intern(value,
  // text): the number of a text in the table. Valid until the next call.
  template <typename Intern, typename LookUp>
  const numbers& operator()(int64_t begin, int64_t n, const row_bits& selected, Intern intern, LookUp look_up) {
    if (inputs_.size() == 1) {
      read_words(begin, n, selected, intern, look_up);
    } else {
      read_tuples(begin, n, selected, intern);
      for_each_set(selected, [&](size_t i) { numbers_[i] = look_up(tuple(i)); });
    }
    return numbers_;
  }

 private:
  // Of one key. Most tables have few keys, so the numbers of those that were looked up last are kept.
  template <typename Intern, typename LookUp>
  void read_words(int64_t begin, int64_t n, const row_bits& selected, Intern intern, LookUp look_up) {
    row_bits rows = selected;
    auto number = [&](uint64_t word, uint64_t nulls) {
      const uint64_t key[] = {word, nulls};
      return look_up(key);
    };
    auto fill = [&](auto word_of) {
      auto fill_row = [&](size_t i) {
        numbers_[i] = cache_.get(word_of(i), [&](uint64_t word) { return number(word, 0); });
      };
      if (rows.words == selected.words) return for_each_set_of_four(rows, fill_row);
      for_each_set(selected, [&](size_t i) { rows.has(i) ? fill_row(i) : void(numbers_[i] = number(0, 1)); });
    };
    inputs_[0](begin, n, rows, [&](const auto* values) { fill([values](size_t i) { return key_word(values[i]); }); });
    if (const column_view* texts = text_column(0))
      fill([&](size_t i) { return intern(0, texts->text_at(begin + static_cast<int64_t>(i))); });
  }

  template <typename Intern>
  void read_tuples(int64_t begin, int64_t n, const row_bits& selected, Intern intern) {
    tuples_.resize(static_cast<size_t>(kBatchRows) * width_);
    for_each_set(selected, [&](size_t i) { tuple(i)[width_ - 1] = 0; });
    for (size_t k = 0; k < inputs_.size(); k++) read_value(k, begin, n, selected, intern);
  }
  template <typename Intern>
  void read_value(size_t k, int64_t begin, int64_t n, const row_bits& selected, Intern intern) {
    row_bits rows = selected;
    inputs_[k](begin, n, rows,
               [&](const auto* values) { for_each_set(rows, [&](size_t i) { tuple(i)[k] = key_word(values[i]); }); });
    if (const column_view* texts = text_column(k))
      for_each_set(rows, [&](size_t i) { tuple(i)[k] = intern(k, texts->text_at(begin + static_cast<int64_t>(i))); });
    for (size_t w = 0; w < rows.words.size(); w++) {
      for_each_set(selected.words[w] & ~rows.words[w], w * 64, [&](size_t i) {
        tuple(i)[k] = 0;
        tuple(i)[width_ - 1] |= uint64_t{1} << k;
      });
    }
  }
  // Null if the key is not a column of texts.
  const column_view* text_column(size_t k) const {
    const column_view* column = inputs_[k].column();
    return column && column->id == type_id::utf8 ? column : nullptr;
  }
  uint64_t* tuple(size_t row) { return &tuples_[row * width_]; }

  size_t width_;
  std::vector<batch_input> inputs_;
  number_cache cache_;
  std::vector<uint64_t> tuples_;
  numbers numbers_;
};

// The rows of a small table by key.
class join_table {
 public:
  // Reads all rows of a small table. Rows with a null in their key match nothing.
  join_table(const plan_view& small, std::span<const int32_t> keys, int64_t rows) : table_(keys.size()) {
    key_reader reader(small, keys);
    next_.resize(static_cast<size_t>(rows), -1);
    for_each_batch(0, rows, [&](int64_t begin, int64_t n) {
      const key_reader::numbers& found = reader(
          begin, n, first_rows(n), [&](size_t k, std::string_view t) { return table_.texts(k).find_or_add(t); },
          [&](const uint64_t* key) { return table_.has_null(key) ? hash_index::kNone : table_.find_or_add(key); });
      for (int64_t i = 0; i < n; i++) add(found[static_cast<size_t>(i)], begin + i);
    });
  }
  // Calls f(row, row of the small table) for the pairs with equal keys, in order of both. Rows without a partner are
  // left out. `reader` is used for this table only.
  template <typename F>
  void probe(key_reader& reader, int64_t begin, int64_t n, const row_bits& selected, F f) const {
    const key_reader::numbers& found = reader(
        begin, n, selected,
        [&](size_t k, std::string_view text) -> uint64_t {
          uint32_t number = table_.texts(k).find(text);
          return number == hash_index::kNone ? ~uint64_t{0} : number;  // a number that no text has
        },
        [&](const uint64_t* key) { return table_.has_null(key) ? hash_index::kNone : table_.find(key); });
    for_each_set(selected, [&](size_t i) {
      if (found[i] == hash_index::kNone) return;
      for (int64_t row = first_[found[i]]; row >= 0; row = next_[static_cast<size_t>(row)])
        f(begin + static_cast<int64_t>(i), row);
    });
  }

 private:
  void add(uint32_t n, int64_t row) {
    if (n == hash_index::kNone) return;
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
