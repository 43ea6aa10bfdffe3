// Columns of a data frame: values in Arrow's layout, in far memory.
//
//   std::vector<double> fares = {12.5, 7.0};
//   farside::frame::column fare = farside::frame::column::of<double>(fares);
//   farside::frame::column_builder<bool> paid;
//   paid.append(true);
//   paid.append_null();
//   farside::frame::column column = std::move(paid).finish();
//
// A column is immutable and shares its buffers with its copies. Buffers have whole pages of their own, so they are
// aligned for every use, and the bytes after the last value read as zero. A column is far memory under `farside run`,
// as all memory of the program; without it, ordinary memory. Thread-safety: as std::shared_ptr. Exceptions:
// std::bad_alloc when far memory is full; std::length_error where the text of one column exceeds 2 GiB.
#ifndef FARSIDE_FRAME_COLUMN_HPP
#define FARSIDE_FRAME_COLUMN_HPP

#include <farside/farside.h>
#include <farside/frame/types.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace farside::frame {

// A column's buffers as Arrow defines them, for functions that run near or on a memory server. Trivially copyable.
// validity: bit i is set where row i has a value; null where every row has one. The buffers extend to a multiple of 64
// bytes.
struct column_view {
  const uint8_t* validity = nullptr;
  const void* values = nullptr;  // utf8: rows + 1 offsets, int32_t
  const char* text = nullptr;    // utf8 only
  int64_t rows = 0, text_bytes = 0;
  type_id id = type_id::int64;
  time_unit unit = time_unit::microsecond;

  template <typename T>
  const T* as() const {
    return static_cast<const T*>(values);
  }
  bool is_valid(int64_t row) const { return !validity || (validity[row / 8] >> (row % 8) & 1); }
  bool bit(int64_t row) const { return as<uint8_t>()[row / 8] >> (row % 8) & 1; }
  std::string_view text_at(int64_t row) const {
    const auto* offsets = as<int32_t>();
    return {text + offsets[row], static_cast<size_t>(offsets[row + 1] - offsets[row])};
  }
};

// Memory for one buffer of a column: whole pages, all zero.
class buffer {
 public:
  static std::shared_ptr<buffer> create(int64_t bytes) { return std::make_shared<buffer>(bytes, key{}); }
  void* data() { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data_);
  }

  struct key {};
  buffer(int64_t bytes, key) : bytes_((static_cast<size_t>(std::max<int64_t>(bytes, 1)) + 4095) / 4096 * 4096) {
    if (bytes_ < kMinRegion) {
      data_ = std::aligned_alloc(4096, bytes_);
      if (!data_) throw std::bad_alloc();
      std::memset(data_, 0, bytes_);
    } else {
      if (farside_region_create(&region_, bytes_, bytes_, nullptr) != 0) throw std::bad_alloc();
      data_ = farside_region_data(region_);
    }
  }
  ~buffer() {
    if (region_) farside_region_destroy(region_);
    else std::free(data_);
  }
  buffer(const buffer&) = delete;
  buffer& operator=(const buffer&) = delete;

 private:
  static constexpr size_t kMinRegion = 64 * 1024;  // of a region: farside.h
  size_t bytes_;
  farside_region* region_ = nullptr;
  void* data_ = nullptr;
};

constexpr int64_t bitmap_bytes(int64_t rows) { return (rows + 63) / 64 * 8; }
inline void set_bit(uint8_t* bits, int64_t at) { bits[at / 8] = static_cast<uint8_t>(bits[at / 8] | 1u << (at % 8)); }
// The 64 bits from bit `at`, a multiple of 64.
inline uint64_t word_at(const void* bitmap, int64_t at) {
  uint64_t word;
  std::memcpy(&word, static_cast<const char*>(bitmap) + at / 8, sizeof word);
  return word;
}

class column {
 public:
  using shared_buffer = std::shared_ptr<buffer>;

  column() = default;
  // From buffers that were filled by the caller. validity may be null: no row is null.
  column(data_type type, int64_t rows, int64_t nulls, shared_buffer validity, shared_buffer values,
         shared_buffer text = nullptr)
      : type_(std::move(type)),
        rows_(rows),
        nulls_(nulls),
        validity_(std::move(validity)),
        values_(std::move(values)),
        text_(std::move(text)) {}

  // Copies values. `type`: another type that is stored the same way, such as date32 for int32_t.
  template <typename T>
  static column of(std::span<const T> values, data_type type = {type_of<T>()}) {
    if (width_of(type.id) != sizeof(T)) throw std::invalid_argument("farside: the values do not fit the column's type");
    auto rows = static_cast<int64_t>(values.size());
    auto stored = buffer::create(rows * static_cast<int64_t>(sizeof(T)));
    if (rows > 0) std::memcpy(stored->data(), values.data(), values.size_bytes());
    return {std::move(type), rows, 0, nullptr, std::move(stored)};
  }

  const data_type& type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t nulls() const { return nulls_; }
  int64_t text_bytes() const { return type_.id == type_id::utf8 && rows_ > 0 ? view().text_bytes : 0; }

  // Valid as long as a copy of the column exists.
  column_view view() const {
    column_view v{nulls_ > 0 ? validity_->as<uint8_t>() : nullptr,
                  values_ ? values_->data() : nullptr,
                  nullptr,
                  rows_,
                  0,
                  type_.id,
                  type_.unit};
    if (text_) {
      v.text = text_->as<char>();
      v.text_bytes = v.as<int32_t>()[rows_];
    }
    return v;
  }
  const shared_buffer& validity_buffer() const { return validity_; }
  const shared_buffer& values_buffer() const { return values_; }
  const shared_buffer& text_buffer() const { return text_; }

  // ---- Single values, for results and tests; row < rows(), and T is the stored type ----
  bool is_null(int64_t row) const { return !view().is_valid(row); }
  template <typename T>
  T get(int64_t row) const {
    if constexpr (std::is_same_v<T, bool>) return view().bit(row);
    else if constexpr (std::is_same_v<T, std::string_view>) return view().text_at(row);
    else return view().as<T>()[row];
  }
  // An integer, a truth value or a number as a double.
  double number(int64_t row) const {
    if (type_.id == type_id::boolean) return get<bool>(row);
    return with_stored_type(type_.id, [&](auto zero) { return static_cast<double>(get<decltype(zero)>(row)); });
  }

 private:
  data_type type_;
  int64_t rows_ = 0, nulls_ = 0;
  shared_buffer validity_, values_, text_;
};

// Builds a column value by value in ordinary memory: for small columns, results and tests. T: bool, an integer type,
// float, double, or std::string_view for utf8.
template <typename T>
class column_builder {
 public:
  explicit column_builder(data_type type = {default_type()}) : type_(std::move(type)) {
    if constexpr (kIsText) offsets_.push_back(0);
  }
  void append(T value) {
    add_validity(true);
    if constexpr (kIsText) add_text(value);
    else values_.push_back(static_cast<stored>(value));
  }
  void append_null() {
    add_validity(false);
    nulls_++;
    if constexpr (kIsText) add_text({});
    else values_.push_back({});
  }
  int64_t rows() const { return rows_; }

  column finish() && {
    auto validity = nulls_ ? copy(validity_) : nullptr;
    if constexpr (kIsText) return {type_, rows_, nulls_, validity, copy(offsets_), copy(text_)};
    else if constexpr (std::is_same_v<T, bool>) return {type_, rows_, nulls_, validity, bits()};
    else return {type_, rows_, nulls_, validity, copy(values_)};
  }

 private:
  static constexpr bool kIsText = std::is_same_v<T, std::string_view>;
  using stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, std::conditional_t<kIsText, char, T>>;
  static constexpr type_id default_type() {
    if constexpr (kIsText) return type_id::utf8;
    else return type_of<T>();
  }

  void add_validity(bool is_valid) {
    if (rows_ % 8 == 0) validity_.push_back(0);
    if (is_valid) set_bit(validity_.data(), rows_);
    rows_++;
  }
  void add_text(std::string_view value) {
    if (value.size() > std::numeric_limits<int32_t>::max() - text_.size())
      throw std::length_error("farside: a utf8 column has more than 2 GiB of text");
    text_.insert(text_.end(), value.begin(), value.end());
    offsets_.push_back(static_cast<int32_t>(text_.size()));
  }
  template <typename V>
  static std::shared_ptr<buffer> copy(const std::vector<V>& values) {
    auto made = buffer::create(static_cast<int64_t>(values.size() * sizeof(V)));
    if (!values.empty()) std::memcpy(made->data(), values.data(), values.size() * sizeof(V));
    return made;
  }
  std::shared_ptr<buffer> bits() const {
    auto made = buffer::create(bitmap_bytes(rows_));
    for (int64_t i = 0; i < rows_; i++) {
      if (values_[static_cast<size_t>(i)]) set_bit(made->template as<uint8_t>(), i);
    }
    return made;
  }

  data_type type_;
  int64_t rows_ = 0, nulls_ = 0;
  std::vector<uint8_t> validity_;
  std::vector<stored> values_;
  std::vector<int32_t> offsets_;
  std::vector<char> text_;
};

}  // namespace farside::frame
#endif
