// Aggregates and groups of data frames against a plain implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "typed.h"

namespace farside::testing {
namespace {

// ---- Aggregates ----

// What data_frame::aggregate returns, computed plainly.
template <typename T>
struct plain_aggregate {
  int64_t count = 0;
  int128 whole = 0;
  long double real = 0;
  std::optional<T> least, most;

  void add(T value) {
    count++;
    if constexpr (std::is_floating_point_v<T>) real += value;
    else whole += value;
    if (!least || is_less(value, *least)) least = value;
    if (!most || is_less(*most, value)) most = value;
  }
};

const std::vector<data_frame::aggregate_of> kAllAggregates = {
    {"count", aggregate_op::count, col("x")}, {"sum", aggregate_op::sum, col("x")},
    {"min", aggregate_op::minimum, col("x")}, {"max", aggregate_op::maximum, col("x")},
    {"mean", aggregate_op::mean, col("x")},   {"rows", aggregate_op::count}};

template <typename T>
void expect_aggregates(const data_frame& found, int64_t row, const plain_aggregate<T>& expected) {
  EXPECT_EQ(get<int64_t>(found, "count", row), expected.count);
  EXPECT_EQ(value_at<T>(found["min"], static_cast<size_t>(row)), expected.least);
  EXPECT_EQ(value_at<T>(found["max"], static_cast<size_t>(row)), expected.most);
  if (expected.count == 0) {
    EXPECT_TRUE(found["sum"].is_null(row) && found["mean"].is_null(row));
    return;
  }
  if constexpr (std::is_floating_point_v<T>) {
    auto sum = static_cast<double>(expected.real);
    EXPECT_NEAR(get<double>(found, "sum", row), sum, std::abs(sum) * 1e-12 + 1e-9);
  } else {
    using sum_type = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    EXPECT_EQ(get<sum_type>(found, "sum", row), static_cast<sum_type>(expected.whole));
    EXPECT_EQ(get<double>(found, "mean", row),
              static_cast<double>(expected.whole) / static_cast<double>(expected.count));
  }
}

// Values whose sums fit.
template <typename T>
values<T> summable(std::mt19937_64& random, size_t rows, bool has_nulls) {
  auto made = random_values<T>(random, rows, has_nulls);
  for (auto& v : made) {
    if constexpr (std::is_floating_point_v<T>) {
      if (v && std::abs(*v) > 1e30f) v = T{1} / 3;
    } else if constexpr (sizeof(T) == 8) {
      if (v) *v /= 1 << 17;
    }
  }
  return made;
}

TYPED_TEST(OfType, Aggregate) {
  std::mt19937_64 random(6);
  for (size_t rows : kSizes) {
    for (bool has_nulls : {false, true}) {
      auto values = summable<TypeParam>(random, rows, has_nulls);
      auto picks = random_values<int8_t>(random, rows, true);
      data_frame f = frame_of({{"x", column_of(values)}, {"pick", column_of(picks)}});
      plain_aggregate<TypeParam> all, some;
      for (size_t i = 0; i < rows; i++) {
        if (values[i]) all.add(*values[i]);
        if (values[i] && picks[i] && *picks[i] < 9) some.add(*values[i]);
      }
      expect_aggregates(f.aggregate(kAllAggregates), 0, all);
      expect_aggregates(f.aggregate(kAllAggregates, col("pick") < 9), 0, some);
      EXPECT_EQ(get<int64_t>(f.aggregate(kAllAggregates), "rows"), static_cast<int64_t>(rows));
      data_frame none = f.aggregate(kAllAggregates, col("pick") != col("pick"));
      expect_aggregates(none, 0, plain_aggregate<TypeParam>());
      EXPECT_EQ(get<int64_t>(none, "rows"), 0);
    }
  }
}

TEST(Aggregate, SumsThatOverflowAreErrors) {
  int64_t max = std::numeric_limits<int64_t>::max(), min = std::numeric_limits<int64_t>::min();
  auto sum_of = [](column c) { return frame_of({{"x", c}}).aggregate({{"s", aggregate_op::sum, col("x")}}); };
  EXPECT_THROW(sum_of(column::of<int64_t>(std::vector{max, int64_t{1}})), std::overflow_error);
  EXPECT_THROW(sum_of(column::of<int64_t>(std::vector{min, int64_t{-1}})), std::overflow_error);
  EXPECT_EQ(get<int64_t>(sum_of(column::of<int64_t>(std::vector{max, max, min, min, int64_t{2}})), "s"), 0);
  uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_THROW(sum_of(column::of<uint64_t>(std::vector{most, uint64_t{1}})), std::overflow_error);
  EXPECT_EQ(get<uint64_t>(sum_of(column::of<uint64_t>(std::vector{most})), "s"), most);
  std::vector<uint64_t> many(3000, most);
  data_frame mean = frame_of({{"x", column::of<uint64_t>(many)}}).aggregate({{"m", aggregate_op::mean, col("x")}});
  EXPECT_EQ(get<double>(mean, "m"), static_cast<double>(most));
}

TEST(Aggregate, NaNsInfinitiesAndRounding) {
  double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  auto of = [](std::vector<double> v) { return frame_of({{"x", column::of<double>(v)}}).aggregate(kAllAggregates); };
  EXPECT_EQ(get<double>(of({nan, 3, -2}), "min"), -2);
  EXPECT_TRUE(std::isnan(get<double>(of({1, nan, -2}), "max")));
  EXPECT_TRUE(std::isnan(get<double>(of({1, nan}), "sum")));
  EXPECT_EQ(get<double>(of({1, infinity, 2}), "sum"), infinity);
  EXPECT_TRUE(std::isnan(get<double>(of({infinity, -infinity}), "sum")));
  EXPECT_EQ(get<double>(of({infinity, 5}), "min"), 5);
  std::vector<double> tiny(4 * 1024, 1);
  tiny[0] = 1e100, tiny[3 * 1024] = -1e100;
  for (size_t i = 1; i < 1024; i++) tiny[i] = tiny[3 * 1024 + i] = 0;
  EXPECT_EQ(get<double>(of(tiny), "sum"), 2048);
}

TEST(Aggregate, BooleansTextsAndExpressions) {
  data_frame f = frame_of({{"b", column_of(values<bool>{true, {}, false, true})},
                           {"t", column_of(values<std::string>{"x", {}, "", "y"})},
                           {"n", column_of(values<int32_t>{1, 2, {}, 4})},
                           {"d", column_of(values<int32_t>{1, 2, {}, -4}, {type_id::date32})}});
  data_frame a = f.aggregate({{"trues", aggregate_op::sum, col("b")},
                              {"all", aggregate_op::minimum, col("b")},
                              {"share", aggregate_op::mean, col("b")},
                              {"texts", aggregate_op::count, col("t")},
                              {"half", aggregate_op::sum, col("n") / 2},
                              {"large", aggregate_op::sum, col("n") > 1},
                              {"last", aggregate_op::maximum, col("d")}});
  EXPECT_EQ(get<int64_t>(a, "trues"), 2);
  EXPECT_EQ(get<bool>(a, "all"), false);
  EXPECT_DOUBLE_EQ(get<double>(a, "share"), 2.0 / 3);
  EXPECT_EQ(get<int64_t>(a, "texts"), 3);
  EXPECT_EQ(get<double>(a, "half"), 3.5);
  EXPECT_EQ(get<int64_t>(a, "large"), 2);
  EXPECT_EQ(get<int32_t>(a, "last"), 2);
  EXPECT_EQ(a["last"].type().id, type_id::date32);
}

// ---- Group by ----

TYPED_TEST(OfEveryType, GroupBy) {
  std::mt19937_64 random(7);
  for (size_t rows : kSizes) {
    auto keys = random_values<TypeParam>(random, rows, true);
    auto more = random_values<bool>(random, rows, true);
    auto values = summable<int32_t>(random, rows, true);
    data_frame f = frame_of({{"k", column_of(keys)}, {"l", column_of(more)}, {"x", column_of(values)}});
    std::map<std::pair<std::optional<TypeParam>, std::optional<bool>>, std::pair<size_t, plain_aggregate<int32_t>>>
        groups;
    for (size_t i = 0; i < rows; i++) {
      if (!values[i] || *values[i] < 0) continue;  // what the condition leaves out
      auto& [number, sums] =
          groups.try_emplace({keys[i], more[i]}, groups.size(), plain_aggregate<int32_t>()).first->second;
      sums.add(*values[i]);
    }
    data_frame found = f.group_by({"k", "l"}, kAllAggregates, col("x") >= 0);
    ASSERT_EQ(found.rows(), groups.size());
    for (const auto& [key, group] : groups) {
      ASSERT_EQ(value_at<TypeParam>(found["k"], group.first), key.first);
      ASSERT_EQ(value_at<bool>(found["l"], group.first), key.second);
      expect_aggregates(found, static_cast<int64_t>(group.first), group.second);
    }
  }
}

// One key, of few and of many values, and aggregates of every type.
template <typename Key, typename T>
void expect_groups(const values<Key>& keys, const values<T>& values) {
  data_frame f = frame_of({{"k", column_of(keys)}, {"x", column_of(values)}});
  std::map<std::optional<Key>, std::pair<int64_t, plain_aggregate<T>>> groups;
  for (size_t i = 0; i < keys.size(); i++) {
    auto& [number, sums] = groups.try_emplace(keys[i], groups.size(), plain_aggregate<T>()).first->second;
    if (values[i]) sums.add(*values[i]);
  }
  data_frame found = f.group_by({"k"}, kAllAggregates);
  ASSERT_EQ(found.rows(), groups.size());
  for (const auto& [key, group] : groups) {
    ASSERT_EQ(value_at<Key>(found["k"], static_cast<size_t>(group.first)), key);
    expect_aggregates(found, group.first, group.second);
  }
}
TEST(GroupBy, OneKey) {
  std::mt19937_64 random(17);
  for (size_t rows : kSizes) {
    for (bool has_nulls : {false, true}) {
      values<uint32_t> some(rows), more(rows);
      for (size_t i = 0; i < rows; i++) some[i] = random() % 64, more[i] = 1 + static_cast<uint32_t>(i) / 30 % 65;
      expect_groups(random_values<int8_t>(random, rows, has_nulls), summable<int16_t>(random, rows, has_nulls));
      expect_groups(random_values<std::string>(random, rows, has_nulls), summable<uint64_t>(random, rows, has_nulls));
      expect_groups(some, summable<double>(random, rows, has_nulls));
      expect_groups(more,
                    summable<double>(random, rows, has_nulls));  // the limit of few groups is exceeded after a while
      expect_groups(more, summable<uint64_t>(random, rows, has_nulls));
    }
  }
}

TEST(GroupBy, ExtremesOfNaNs) {
  double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  data_frame f = frame_of({{"k", column::of<int8_t>(std::vector<int8_t>{0, 0, 1, 1, 2, 2})},
                           {"x", column::of<double>(std::vector<double>{nan, nan, nan, -1, infinity, -infinity})}});
  f = f.group_by({"k"}, {{"min", aggregate_op::minimum, col("x")}, {"max", aggregate_op::maximum, col("x")}});
  EXPECT_TRUE(std::isnan(get<double>(f, "min", 0)) && std::isnan(get<double>(f, "max", 0)));
  EXPECT_TRUE(get<double>(f, "min", 1) == -1 && std::isnan(get<double>(f, "max", 1)));
  EXPECT_TRUE(get<double>(f, "min", 2) == -infinity && get<double>(f, "max", 2) == infinity);
}

TEST(GroupBy, NaNAndZeroKeysAndManyGroups) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  data_frame f = frame_of({{"k", column::of<double>(std::vector<double>{nan, 0.0, -0.0, -nan})}});
  EXPECT_EQ(values_of<int64_t>(f.group_by({"k"}, {{"n"}})["n"]), (values<int64_t>{2, 2}));
  std::vector<int64_t> many(100000);
  for (size_t i = 0; i < many.size(); i++) many[i] = static_cast<int64_t>(i % 50000) << 40;
  data_frame found = frame_of({{"k", column::of<int64_t>(many)}}).group_by({"k"}, {{"n"}});
  ASSERT_EQ(found.rows(), 50000u);
  for (int64_t i = 0; i < 50000; i++) {
    ASSERT_EQ(get<int64_t>(found, "k", i), i << 40);
    ASSERT_EQ(get<int64_t>(found, "n", i), 2);
  }
}

TEST(GroupBy, ComputedKeys) {
  data_frame f = frame_of({{"t", column::of<int64_t>(std::vector<int64_t>{0, 3600, 7199, 86400},
                                                     {type_id::timestamp, frame::time_unit::second})}});
  data_frame found = f.group_by({{"h", hour(col("t"))}, {"late", col("t") > 7000}}, {{"n"}});
  EXPECT_EQ(values_of<int64_t>(found["h"]), (values<int64_t>{0, 1, 1, 0}));
  EXPECT_EQ(values_of<bool>(found["late"]), (values<bool>{false, false, true, true}));
}

}  // namespace
}  // namespace farside::testing
