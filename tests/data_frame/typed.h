// What the tests of the operators share: suites over all types, numbers of rows, comparisons.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "table.h"

namespace farside::testing {

using frame::aggregate_op, frame::col, frame::column, frame::comparison, frame::placement, frame::type_id;
using order = data_frame::order;

__extension__ typedef __int128 int128;

constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 1023, 1024, 1025, 8192, 8193, 20001};

template <typename T>
class OfType : public ::testing::Test {};
using Numbers =
    ::testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float, double>;
using AllTypes = ::testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float,
                                  double, bool, std::string>;
TYPED_TEST_SUITE(OfType, Numbers);
template <typename T>
class OfEveryType : public ::testing::Test {};
TYPED_TEST_SUITE(OfEveryType, AllTypes);

inline data_frame frame_of(std::initializer_list<std::pair<const char*, column>> columns) {
  data_frame made;
  for (const auto& [name, c] : columns) made.add(name, c);
  return made;
}
template <typename T>
T get(const data_frame& f, const char* name, int64_t row = 0) {
  EXPECT_FALSE(f[name].is_null(row)) << name;
  return f[name].get<T>(row);
}

template <typename T>
bool holds(T a, comparison c, T b) {
  switch (c) {
    case comparison::equal:
      return a == b;
    case comparison::not_equal:
      return a != b;
    case comparison::less:
      return a < b;
    case comparison::less_or_equal:
      return a <= b;
    case comparison::greater:
      return a > b;
    case comparison::greater_or_equal:
      return a >= b;
  }
  return false;
}
constexpr comparison kComparisons[] = {comparison::equal,         comparison::not_equal, comparison::less,
                                       comparison::less_or_equal, comparison::greater,   comparison::greater_or_equal};

template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(b) ? !std::isnan(a) : a < b;
  else return a < b;
}

}  // namespace farside::testing
