// Fibers: many tasks on two threads. While one waits for a far page, its thread runs others.
//
//   farside run --local 25% -- ./fibers
#include <farside/fiber.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

// Follows a chain through the table, as a look-up in an index does.
uint64_t walk(const std::vector<uint64_t>& table, uint64_t at, unsigned steps) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < steps; i++) {
    at = table[at % table.size()];
    sum += at;
  }
  return sum;
}

}  // namespace

int main() {
  constexpr unsigned kFibers = 64, kSteps = 1000;
  std::vector<uint64_t> table(size_t{4} << 20);  // 32 MiB
  for (size_t i = 0; i < table.size(); i++) table[i] = i * 2654435761u + 1;

  uint64_t sum = 0;
  farside::run_fibers(2, [&] {
    farside::channel<uint64_t> sums(16);
    std::vector<farside::fiber> walkers;
    for (unsigned i = 0; i < kFibers; i++) walkers.emplace_back([&, i] { sums.send(walk(table, i * 65537, kSteps)); });
    for (unsigned i = 0; i < kFibers; i++) sum += *sums.receive();
  });  // the destructors of the fibers join them
  printf("%u fibers, %u steps each, sum %llu\n", kFibers, kSteps, static_cast<unsigned long long>(sum));
}
