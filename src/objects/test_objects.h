// For tests of objects on a pager in this process: types of objects, and fibers that use them.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "farside/fiber.hpp"
#include "farside/structure.hpp"
#include "objects/test_support.h"

namespace farside::objects {

// Types of objects of the tests.
struct Small {
  uint64_t key, value;
};
struct Line {
  uint64_t words[8];
};
struct Large {
  uint64_t words[300];
};
struct Huge {
  uint64_t words[3000];
};
// Types with owners inside have their numbers from one fixture, so each is used in one test only.
template <int test>
struct NodeOf {
  uint64_t value = 0;
  farside::unique_ptr<NodeOf> next;
};
using Node = NodeOf<0>;
using ListNode = NodeOf<1>;

inline void wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 200000 && !condition(); i++) os::nanosleep_ns(500000);
  EXPECT_TRUE(condition());
}

// Runs work(number) in each of `fibers` fibers, and waits until all have ended.
inline void run_numbered_fibers(unsigned workers, uint64_t fibers, const std::function<void(uint64_t)>& work) {
  run_fibers(workers, [&] {
    std::vector<fiber> all;
    for (uint64_t f = 0; f < fibers; f++) all.emplace_back([&, f] { work(f); });
  });
}

}  // namespace farside::objects

template <int test>
struct farside::far_pointers<farside::objects::NodeOf<test>> : farside::fields<&farside::objects::NodeOf<test>::next> {
};
