// Operators of data frames that choose rows: join, top k, take.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "typed.h"

namespace farside::testing {
namespace {

// ---- Join ----

TYPED_TEST(OfEveryType, Join) {
  std::mt19937_64 random(8);
  for (size_t rows : kSizes) {
    for (size_t small_rows : {0, 1, 40}) {
      auto keys = random_values<TypeParam>(random, rows, true),
           small = random_values<TypeParam>(random, small_rows, true);
      std::vector<int64_t> numbers(rows), small_numbers(small_rows);
      for (size_t i = 0; i < rows; i++) numbers[i] = static_cast<int64_t>(i);
      for (size_t i = 0; i < small_rows; i++) small_numbers[i] = static_cast<int64_t>(i);
      data_frame f = frame_of({{"k", column_of(keys)}, {"i", column::of<int64_t>(numbers)}});
      data_frame s = frame_of({{"key", column_of(small)}, {"j", column::of<int64_t>(small_numbers)}});
      data_frame found = f.join(s, {"k"}, {"key"});
      size_t at = 0;
      for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < small_rows; j++) {
          if (!keys[i] || keys[i] != small[j]) continue;
          ASSERT_LT(at, found.rows());
          ASSERT_EQ(get<int64_t>(found, "i", static_cast<int64_t>(at)), static_cast<int64_t>(i));
          ASSERT_EQ(get<int64_t>(found, "j", static_cast<int64_t>(at)), static_cast<int64_t>(j));
          ASSERT_EQ(value_at<TypeParam>(found["k"], at), keys[i]);
          at++;
        }
      }
      ASSERT_EQ(found.rows(), at);
      EXPECT_EQ(found.columns(), 3u);
    }
  }
}

TEST(Join, TwoKeys) {
  data_frame f = frame_of(
      {{"a", column_of(values<int32_t>{1, 1, 2, {}})}, {"b", column_of(values<std::string>{"x", "y", "x", "x"})}});
  data_frame s = frame_of({{"a", column_of(values<int32_t>{1, 2, {}})},
                           {"b", column_of(values<std::string>{"x", "x", "x"})},
                           {"c", column_of(values<double>{7, {}, 9})}});
  data_frame found = f.join(s, {"a", "b"});
  EXPECT_EQ(values_of<int32_t>(found["a"]), (values<int32_t>{1, 2}));
  EXPECT_EQ(values_of<double>(found["c"]), (values<double>{7, {}}));
}

// ---- Top k, take ----

TYPED_TEST(OfType, TopK) {
  std::mt19937_64 random(9);
  for (size_t rows : kSizes) {
    auto values = random_values<TypeParam>(random, rows, true);
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < rows; i++) numbers.push_back(static_cast<int64_t>(i));
    data_frame f = frame_of({{"x", column_of(values)}, {"i", column::of<int64_t>(numbers)}});
    std::erase_if(numbers, [&](int64_t i) { return !values[static_cast<size_t>(i)]; });
    auto at = [&](int64_t i) { return *values[static_cast<size_t>(i)]; };
    for (order by : {order::ascending, order::descending}) {
      auto sorted = numbers;
      std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) {
        return by == order::ascending ? is_less(at(a), at(b)) : is_less(at(b), at(a));
      });
      for (size_t k : {size_t{0}, size_t{1}, size_t{100}, rows, rows + 5}) {
        data_frame found = f.top_k(k, col("x"), by);
        ASSERT_EQ(found.rows(), std::min(k, sorted.size()));
        for (size_t i = 0; i < found.rows(); i++)
          ASSERT_EQ(found["i"].get<int64_t>(static_cast<int64_t>(i)), sorted[i]);
      }
    }
  }
}

TEST(TopK, OfAConditionAndAnExpression) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  data_frame f = frame_of({{"x", column::of<double>(std::vector<double>{1, nan, -5, 3})},
                           {"n", column::of<int8_t>(std::vector<int8_t>{0, 1, 2, 3})}});
  EXPECT_EQ(values_of<int8_t>(f.top_k(2, col("x") * col("x"), order::descending, col("n") != 1)["n"]),
            (values<int8_t>{2, 3}));
  EXPECT_EQ(values_of<int8_t>(f.top_k(2, col("x"))["n"]), (values<int8_t>{1, 3}));
  EXPECT_EQ(values_of<int8_t>(f.top_k(9, col("x"), order::ascending)["n"]), (values<int8_t>{2, 0, 3, 1}));
}

TYPED_TEST(OfEveryType, Take) {
  std::mt19937_64 random(10);
  auto values = random_values<TypeParam>(random, 3000, true);
  data_frame f = frame_of({{"x", column_of(values)}});
  std::vector<int64_t> rows(5000);
  testing::values<TypeParam> expected;
  for (int64_t& row : rows) {
    row = static_cast<int64_t>(random() % 3000);
    expected.push_back(values[static_cast<size_t>(row)]);
  }
  EXPECT_EQ(values_of<TypeParam>(f.take(rows)["x"]), expected);
  EXPECT_EQ(f.take({}).rows(), 0u);
  EXPECT_THROW(f.take({3000}), std::out_of_range);
  EXPECT_THROW(f.take({-1}), std::out_of_range);
}

}  // namespace
}  // namespace farside::testing
