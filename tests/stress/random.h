// splitmix64: a small generator, copyable, with the same values on every machine.
#pragma once
#include <cstdint>

namespace farside::stress {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t end) { return next() % end; }
  uint64_t between(uint64_t first, uint64_t last) { return first + below(last - first + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace farside::stress
