// What the tests of the containers share: types of elements, and the comparison with a standard container.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "farside/scope.hpp"
#include "objects/test_support.h"

namespace farside::objects {

struct Line {
  uint64_t words[8];
  bool operator==(const Line&) const = default;
};
struct Large {
  uint64_t key;
  char text[6000];
};
struct NoDefault {
  explicit NoDefault(int v) : value(v) {}
  int value;
};

template <typename T>
T value_of(uint64_t x) {
  if constexpr (std::is_same_v<T, Line>) return Line{{x, ~x, x * 3}};
  else return static_cast<T>(x);
}

template <typename Far, typename Near>
void expect_same(const Far& far, const Near& near) {
  ASSERT_EQ(far.size(), near.size());
  auto n = near.begin();
  size_t i = 0;
  for (auto value : far) ASSERT_TRUE(value == *n++) << i++;
  deref_scope scope;
  n = near.begin();
  for (const auto& value : far.in(scope)) ASSERT_TRUE(value == *n++);
}

}  // namespace farside::objects
