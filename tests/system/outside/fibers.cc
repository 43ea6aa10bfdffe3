// Fibers that read and write far memory, with and without hints, and send their results through a channel. Prints a
// sum.
#include <farside/farside.h>
#include <farside/fiber.hpp>

#include <cstdio>
#include <memory>
#include <vector>

int main() {
  constexpr size_t kWords = 4 << 20;
  constexpr unsigned kFibers = 32, kSteps = 2000;
  std::unique_ptr<uint64_t[]> words(new uint64_t[kWords]);
  for (size_t i = 0; i < kWords; i++) words[i] = i * 2654435761u;
  uint64_t sum = 0;
  farside::run_fibers(2, [&] {
    farside::channel<uint64_t> found(16);
    std::vector<farside::fiber> walkers;
    for (unsigned f = 0; f < kFibers; f++) {
      walkers.emplace_back([&, f] {
        uint64_t random = f + 1, mine = 0;
        for (unsigned i = 0; i < kSteps; i++) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          uint64_t& word = words[(random >> 20) % (kWords / kFibers) * kFibers + f];  // of this fiber only
          if (f % 2) farside_hint_write(&word, sizeof word);
          mine += word++;
        }
        found.send(mine);
      });
    }
    for (unsigned f = 0; f < kFibers; f++) sum += *found.receive();
  });
  for (size_t i = 0; i < kWords; i++) sum += words[i];
  printf("%016llx\n", static_cast<unsigned long long>(sum));
}
