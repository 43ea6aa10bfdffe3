// Random columns with nulls and extreme values, beside the same values as plain C++, for tests.
#pragma once
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "farside/frame/data_frame.hpp"

namespace farside::testing {

template <typename T>
using values = std::vector<std::optional<T>>;

template <typename T>
frame::column column_of(const values<T>& from, frame::data_type type) {
  using stored = std::conditional_t<std::is_same_v<T, std::string>, std::string_view, T>;
  frame::column_builder<stored> made(std::move(type));
  for (const std::optional<T>& v : from) {
    if (v) made.append(*v);
    else made.append_null();
  }
  return std::move(made).finish();
}
template <typename T>
frame::column column_of(const values<T>& from) {
  if constexpr (std::is_same_v<T, std::string>) return column_of(from, {frame::type_id::utf8});
  else return column_of(from, {frame::type_of<T>()});
}

template <typename T>
T random_value(std::mt19937_64& random) {
  uint64_t r = random();
  if constexpr (std::is_same_v<T, bool>) return r & 1;
  else if constexpr (std::is_same_v<T, std::string>)
    return std::string(r % 4 * (r >> 8) % 13, static_cast<char>('a' + r % 3));
  else if constexpr (std::is_floating_point_v<T>) {
    constexpr T kSpecial[] = {0,
                              -T{0},
                              std::numeric_limits<T>::max(),
                              std::numeric_limits<T>::lowest(),
                              std::numeric_limits<T>::denorm_min(),
                              std::numeric_limits<T>::infinity()};
    if (r % 50 == 0) return kSpecial[(r >> 8) % 3];
    return static_cast<T>(static_cast<int64_t>(r >> 40)) / 64 - 1000;
  } else {
    if (r % 20 == 0) return std::numeric_limits<T>::max();
    if (r % 20 == 1) return std::numeric_limits<T>::min();
    return static_cast<T>(r % 4 == 2 ? r >> 32 : r >> 32 & 15);
  }
}

template <typename T>
values<T> random_values(std::mt19937_64& random, size_t rows, bool has_nulls) {
  values<T> made(rows);
  for (auto& v : made) {
    if (!has_nulls || random() % 5 != 0) v = random_value<T>(random);
  }
  return made;
}

// The value of a row as it was given to column_of.
template <typename T>
std::optional<T> value_at(const frame::column& c, size_t row) {
  auto at = static_cast<int64_t>(row);
  if (c.is_null(at)) return {};
  if constexpr (std::is_same_v<T, std::string>) return std::string(c.get<std::string_view>(at));
  else return c.get<T>(at);
}
template <typename T>
values<T> values_of(const frame::column& c) {
  values<T> made;
  for (size_t row = 0; row < static_cast<size_t>(c.rows()); row++) made.push_back(value_at<T>(c, row));
  return made;
}

}  // namespace farside::testing
