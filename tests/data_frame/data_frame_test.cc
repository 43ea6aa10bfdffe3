// The operators of data frames against a plain implementation: every type, random data with nulls and extreme values,
// numbers of rows around the borders of words, batches and blocks.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cmath>
#include <map>
#include <set>

#include "typed.h"

namespace farside::testing {
namespace {

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
