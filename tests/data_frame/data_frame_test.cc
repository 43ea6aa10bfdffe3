// The operators of data frames against a plain implementation: every type, random data with nulls and extreme values,
// numbers of rows around the borders of words, batches and blocks.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <map>
#include <set>

#include "table.h"

namespace farside::testing {
namespace {

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

data_frame frame_of(std::initializer_list<std::pair<const char*, column>> columns) {
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

// ---- Filter ----

TYPED_TEST(OfType, FilterComparesExactly) {
  std::mt19937_64 random(1);
  using T = TypeParam;
  for (size_t rows : kSizes) {
    auto values = random_values<T>(random, rows, rows % 2);
    data_frame f = frame_of({{"x", column_of(values)}});
    for (T wanted : {T{3}, std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()}) {
      for (comparison c : kComparisons) {
        testing::values<T> expected;
        for (const auto& v : values) {
          if (v && holds(*v, c, wanted)) expected.push_back(v);
        }
        ASSERT_EQ(values_of<T>(f.filter(compared(col("x"), c, wanted))["x"]), expected) << rows;
      }
    }
  }
}

TYPED_TEST(OfEveryType, FilterCopiesEveryColumn) {
  std::mt19937_64 random(2);
  for (size_t rows : kSizes) {
    for (bool has_nulls : {false, true}) {
      auto values = random_values<TypeParam>(random, rows, has_nulls);
      auto picks = random_values<int32_t>(random, rows, has_nulls);
      data_frame f = frame_of({{"x", column_of(values)}, {"pick", column_of(picks)}});
      testing::values<TypeParam> expected;
      for (size_t i = 0; i < rows; i++) {
        if (picks[i] && *picks[i] > 3) expected.push_back(values[i]);
      }
      data_frame found = f.filter(col("pick") > 3);
      ASSERT_EQ(values_of<TypeParam>(found["x"]), expected);
      EXPECT_EQ(found["x"].nulls(), std::count(expected.begin(), expected.end(), std::nullopt));
      EXPECT_EQ(f.filter(col("pick") != col("pick")).rows(), 0u);
      EXPECT_EQ(values_of<TypeParam>(f.filter(col("pick").is_null() || !col("pick").is_null())["x"]), values);
    }
  }
}

TEST(Filter, ConstantsOutsideOfTheTypesRange) {
  data_frame f = frame_of({{"small", column::of<int8_t>(std::vector<int8_t>{-128, 0, 127})},
                           {"unsigned", column::of<uint64_t>(std::vector<uint64_t>{0, 1, ~uint64_t{0}})},
                           {"large", column::of<int64_t>(std::vector<int64_t>{-1, 1L << 53, (1L << 53) + 1})}});
  EXPECT_EQ(f.filter(col("small") < 128).rows(), 3u);
  EXPECT_EQ(f.filter(col("small") > 1000).rows(), 0u);
  EXPECT_EQ(f.filter(col("small") >= -1000).rows(), 3u);
  EXPECT_EQ(f.filter(col("small") == 300).rows(), 0u);
  EXPECT_EQ(f.filter(300 != col("small")).rows(), 3u);
  EXPECT_EQ(f.filter(col("unsigned") > -1).rows(), 3u);
  EXPECT_EQ(f.filter(-1 < col("unsigned")).rows(), 3u);
  EXPECT_EQ(f.filter(col("unsigned") == ~uint64_t{0}).rows(), 1u);
  EXPECT_EQ(f.filter(col("large") < ~uint64_t{0}).rows(), 3u);
  EXPECT_EQ(f.filter(col("large") == (1L << 53) + 1).rows(), 1u);
  EXPECT_EQ(f.filter(col("small") > 0.5).rows(), 1u);
}

TEST(Filter, NaNIsEqualToNothing) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  data_frame f = frame_of({{"x", column::of<double>(std::vector<double>{nan, 1})}});
  EXPECT_EQ(f.filter(col("x") == nan).rows(), 0u);
  EXPECT_EQ(f.filter(col("x") != 1).rows(), 1u);
  EXPECT_EQ(f.filter(col("x") > 0).rows(), 1u);
  EXPECT_EQ(f.filter(!(col("x") > 0)).rows(), 1u);
}

std::optional<bool> and_of(std::optional<bool> a, std::optional<bool> b) {
  if (a == false || b == false) return false;
  return a && b ? std::optional(true) : std::nullopt;
}
std::optional<bool> not_of(std::optional<bool> a) { return a ? std::optional(!*a) : std::nullopt; }
std::optional<bool> or_of(std::optional<bool> a, std::optional<bool> b) { return not_of(and_of(not_of(a), not_of(b))); }

TEST(Filter, LogicHasThreeValues) {
  std::mt19937_64 random(3);
  for (size_t rows : kSizes) {
    auto a = random_values<bool>(random, rows, true), b = random_values<bool>(random, rows, true);
    auto n = random_values<int16_t>(random, rows, true);
    data_frame f = frame_of({{"a", column_of(a)}, {"b", column_of(b)}, {"n", column_of(n)}});
    f = f.with("and", col("a") && col("b")).with("or", col("a") || !(col("b") && col("n") > 3));
    f = f.with("null", (col("a") || col("b")).is_null());
    for (size_t i = 0; i < rows; i++) {
      std::optional<bool> is_large = n[i] ? std::optional(*n[i] > 3) : std::nullopt;
      ASSERT_EQ(value_at<bool>(f["and"], i), and_of(a[i], b[i]));
      ASSERT_EQ(value_at<bool>(f["or"], i), or_of(a[i], not_of(and_of(b[i], is_large))));
      ASSERT_EQ(value_at<bool>(f["null"], i), std::optional(!or_of(a[i], b[i])));
    }
  }
}

TEST(Filter, Texts) {
  std::mt19937_64 random(4);
  auto texts = random_values<std::string>(random, 5000, true);
  texts[7] = "";
  texts[8] = std::string("a\0b", 3);
  data_frame f = frame_of({{"t", column_of(texts)}});
  for (std::string wanted : {std::string(), std::string("aaa"), std::string("b"), std::string("a\0b", 3)}) {
    for (comparison c : kComparisons) {
      testing::values<std::string> expected;
      for (const auto& t : texts) {
        if (t && holds(*t, c, wanted)) expected.push_back(t);
      }
      ASSERT_EQ(values_of<std::string>(f.filter(compared(col("t"), c, wanted))["t"]), expected);
    }
  }
}

// ---- Computed columns ----

TEST(With, Arithmetic) {
  std::mt19937_64 random(5);
  for (size_t rows : kSizes) {
    auto a = random_values<double>(random, rows, true);
    auto b = random_values<uint16_t>(random, rows, true);
    data_frame f = frame_of({{"a", column_of(a)}, {"b", column_of(b)}});
    f = f.with("c", sqrt(col("b")) * 2 - col("a") / (col("b") + 1.5)).with("d", asin(sin(col("b")) * cos(col("b"))));
    for (size_t i = 0; i < rows; i++) {
      std::optional<double> c, d;
      if (a[i] && b[i]) c = std::sqrt(double{static_cast<double>(*b[i])}) * 2 - *a[i] / (*b[i] + 1.5);
      if (b[i]) d = std::asin(std::sin(static_cast<double>(*b[i])) * std::cos(static_cast<double>(*b[i])));
      ASSERT_EQ(value_at<double>(f["c"], i), c) << i;
      ASSERT_EQ(value_at<double>(f["d"], i), d) << i;
    }
  }
}

TEST(With, RepeatedAndConstantOperands) {
  std::mt19937_64 random(15);
  for (size_t rows : kSizes) {
    auto a = random_values<double>(random, rows, true);
    auto b = random_values<int32_t>(random, rows, true);
    data_frame f = frame_of({{"a", column_of(a)}, {"b", column_of(b)}});
    frame::expression two(2), sum = col("a") + col("b"), square = sum * sum;
    f = f.with("c", square * square - sum / sum).with("d", 3 - two * two / (1 - col("b") * col("b")));
    f = f.with("e", two - two).with("f", two * two > col("a"));
    for (size_t i = 0; i < rows; i++) {
      std::optional<double> c, d;
      if (a[i] && b[i]) {
        double both = *a[i] + *b[i];
        c = both * both * (both * both) - both / both;
      }
      if (b[i]) d = 3 - 4.0 / (1 - static_cast<double>(*b[i]) * *b[i]);
      auto found = value_at<double>(f["c"], i);
      ASSERT_EQ(found.has_value(), c.has_value()) << i;
      if (c) {
        ASSERT_TRUE(*found == *c || (std::isnan(*found) && std::isnan(*c))) << i;
      }
      ASSERT_EQ(value_at<double>(f["d"], i), d) << i;
      ASSERT_EQ(value_at<double>(f["e"], i), 0) << i;
      ASSERT_EQ(value_at<bool>(f["f"], i), a[i] ? std::optional(4 > *a[i]) : std::nullopt) << i;
    }
  }
}

// Integers are converted in two ways, by their size; the first batch has large ones.
TEST(With, NumbersOfLargeIntegers) {
  constexpr int64_t kEdge = int64_t{1} << 51, kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> values;
  for (int64_t base : {int64_t{0}, kEdge, -kEdge, 4 * kEdge, kMax - 2, 2 - kMax}) {
    for (int64_t i = -2; i <= 2; i++) values.push_back(base + i);
  }
  values.resize(64, 1);
  for (int64_t i = 0; i < 2000; i++) values.push_back((i % 2 ? i : -i) * (kEdge / 2000));
  data_frame f = frame_of({{"n", column::of<int64_t>(values)}}).with("x", col("n") + 0.0);
  for (size_t i = 0; i < values.size(); i++)
    ASSERT_EQ(value_at<double>(f["x"], i), static_cast<double>(values[i])) << values[i];
}

template <int64_t kSecond>
void expect_times_of_day(frame::time_unit unit) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = std::numeric_limits<int64_t>::min();
  std::mt19937_64 random(16);
  std::vector<int64_t> times = {kMin, kMin + 1, kMax, kMax - 1, -1, 0};
  for (int64_t day : {int64_t{0}, kMin / 2, kMax / 2}) {
    for (int i = 0; i < 500; i++) times.push_back(day + static_cast<int64_t>(random() % (172800 * kSecond)));
  }
  for (int i = 0; i < 500; i++) times.push_back(kMin + static_cast<int64_t>(random() % (172800 * kSecond)));
  for (int i = 0; i < 500; i++) times.push_back(kMax - static_cast<int64_t>(random() % (172800 * kSecond)));
  data_frame f = frame_of({{"t", column::of<int64_t>(times, {type_id::timestamp, unit})}});
  f = f.with("h", hour(col("t"))).with("m", minute(col("t")));
  for (size_t i = 0; i < times.size(); i++) {
    int64_t of_day = times[i] % (86400 * kSecond);
    if (of_day < 0) of_day += 86400 * kSecond;
    ASSERT_EQ(value_at<int64_t>(f["h"], i), of_day / (3600 * kSecond)) << times[i];
    ASSERT_EQ(value_at<int64_t>(f["m"], i), of_day / (60 * kSecond) % 60) << times[i];
  }
}
TEST(With, TimesOfDayOfAllTimes) {
  expect_times_of_day<1>(frame::time_unit::second);
  expect_times_of_day<1000>(frame::time_unit::millisecond);
  expect_times_of_day<1000000>(frame::time_unit::microsecond);
  expect_times_of_day<1000000000>(frame::time_unit::nanosecond);
}

TEST(With, PartsOfDates) {
  std::vector<int32_t> days = {
      0, -1, 59, 19782, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
  std::vector<int64_t> seconds = {0, -1, 1709164800 + 13 * 3600 + 59 * 60 + 59};  // the last is on 2024-02-29
  data_frame dates = frame_of({{"d", column::of<int32_t>(days, {type_id::date32})}});
  dates =
      dates.with("y", year(col("d"))).with("m", month(col("d"))).with("n", day(col("d"))).with("w", weekday(col("d")));
  EXPECT_EQ(values_of<int64_t>(dates["y"]), (values<int64_t>{1970, 1969, 1970, 2024, 5881580, -5877641}));
  EXPECT_EQ(values_of<int64_t>(dates["m"]), (values<int64_t>{1, 12, 3, 2, 7, 6}));
  EXPECT_EQ(values_of<int64_t>(dates["n"]), (values<int64_t>{1, 31, 1, 29, 11, 23}));
  EXPECT_EQ(values_of<int64_t>(dates["w"]), (values<int64_t>{4, 3, 0, 4, 5, 2}));
  using frame::time_unit;
  for (auto [unit, per_second] : {std::pair{time_unit::second, 1L},
                                  {time_unit::millisecond, 1000L},
                                  {time_unit::microsecond, 1000000L},
                                  {time_unit::nanosecond, 1000000000L}}) {
    std::vector<int64_t> times;
    for (int64_t s : seconds) times.push_back(s * per_second);
    data_frame f = frame_of({{"t", column::of<int64_t>(times, {type_id::timestamp, unit})}});
    f = f.with("h", hour(col("t"))).with("m", minute(col("t"))).with("d", day(col("t"))).with("y", year(col("t")));
    EXPECT_EQ(values_of<int64_t>(f["h"]), (values<int64_t>{0, 23, 13}));
    EXPECT_EQ(values_of<int64_t>(f["m"]), (values<int64_t>{0, 59, 59}));
    EXPECT_EQ(values_of<int64_t>(f["d"]), (values<int64_t>{1, 31, 29}));
    EXPECT_EQ(values_of<int64_t>(f["y"]), (values<int64_t>{1970, 1969, 2024}));
  }
}

// ---- Aggregates ----

template <typename T>
bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(b) ? !std::isnan(a) : a < b;
  else return a < b;
}

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

// ---- Errors ----

#ifndef __SANITIZE_ADDRESS__  // whose stacks are larger
void* use_all_operators(void* rows) {
  std::vector<int64_t> times(20000);
  for (size_t i = 0; i < times.size(); i++) times[i] = static_cast<int64_t>(i) * 977;
  data_frame f = frame_of({{"t", column::of<int64_t>(times, {type_id::timestamp, frame::time_unit::second})}});
  f = f.with("x", col("t") / 977).with("h", hour(col("t")));
  data_frame hours = f.group_by({"h"}, {{"n"}, {"last", aggregate_op::maximum, col("t")}}).select({"h", "n"});
  data_frame sum = f.aggregate({{"s", aggregate_op::sum, hour(col("t"))}}, col("x") >= 0);
  *static_cast<size_t*>(rows) = f.filter(col("x") * col("x") >= 0).rows() + f.join(hours, {"h"}).rows() +
                                f.top_k(10, col("x")).rows() + f.take({3, 1}).rows() + sum.rows();
  return nullptr;
}
TEST(Stack, OfAFiberIsEnough) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);  // the default of fibers
  pthread_t thread;
  size_t rows = 0;
  ASSERT_EQ(pthread_create(&thread, &attributes, use_all_operators, &rows), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(rows, 20000u + 20000 + 10 + 2 + 1);
}
#endif

TEST(Errors, NamesAndTypes) {
  data_frame f = frame_of({{"n", column::of<int32_t>(std::vector<int32_t>{1, 2})},
                           {"t", column_of(values<std::string>{"a", "b"})},
                           {"b", column_of(values<bool>{true, {}})}});
  EXPECT_THROW(f["missing"], std::invalid_argument);
  EXPECT_THROW(f.filter(col("missing") > 1), std::invalid_argument);
  EXPECT_THROW(f.add("n", f["t"]), std::invalid_argument);
  EXPECT_THROW(f.add("m", column::of<int32_t>(std::vector<int32_t>{1})), std::invalid_argument);
  EXPECT_THROW(f.filter(col("n")), std::invalid_argument);
  EXPECT_THROW(f.filter(col("n") + 1), std::invalid_argument);
  EXPECT_THROW(f.filter(col("t") > 1), std::invalid_argument);
  EXPECT_THROW(f.filter(col("n") == "a"), std::invalid_argument);
  EXPECT_THROW(f.filter(col("t") == col("t")), std::invalid_argument);
  EXPECT_THROW(f.filter(col("n") && col("b")), std::invalid_argument);
  EXPECT_THROW(f.with("x", col("t") + 1), std::invalid_argument);
  EXPECT_THROW(f.with("x", year(col("n"))), std::invalid_argument);
  EXPECT_THROW(f.with("x", "constant"), std::invalid_argument);
  EXPECT_THROW(f.aggregate({{"s", aggregate_op::sum, col("t")}}), std::invalid_argument);
  EXPECT_THROW(f.aggregate({{"s", aggregate_op::sum}}), std::invalid_argument);
  EXPECT_THROW(f.group_by({}, {{"n"}}), std::invalid_argument);
  EXPECT_THROW(f.top_k(1, col("t")), std::invalid_argument);
  EXPECT_THROW(f.join(f, {"n"}), std::invalid_argument);  // both have t and b
  EXPECT_THROW(f.join(f, {"n"}, {"t"}), std::invalid_argument);
  EXPECT_THROW(f.filter(col("n") > 1, placement::server), std::system_error);  // no server
  EXPECT_EQ(f.select({"t", "n"}).names(), (std::vector<std::string>{"t", "n"}));
}

}  // namespace
}  // namespace farside::testing
