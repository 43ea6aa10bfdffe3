// `farside bench fibers`: random reads of far pages by 1 to 64 fibers on one worker, with and without hints, and by the
// same number of threads. While a fiber waits for its page, others run, so their reads overlap.
#include <atomic>

#include "base/clock.h"
#include "bench/suites.h"
#include "farside/fiber.hpp"
#include "measure/random.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr unsigned kCounts[] = {1, 4, 16, 64};
constexpr size_t kWordInPage = 64;

enum class Readers { kFibers, kHintedFibers, kThreads };

struct Configuration {
  const char* name;
  const char* transport;
  Readers readers;
  bool two_servers = false;  // slabs on both
};
constexpr Configuration kConfigurations[] = {
    {"fibers, tcp", "tcp", Readers::kFibers},
    {"hinted fibers, tcp", "tcp", Readers::kHintedFibers},
    {"threads, tcp", "tcp", Readers::kThreads},
    {"hinted fibers, shm", "shm", Readers::kHintedFibers},
    {"hinted fibers, tcp, 2 servers", "tcp", Readers::kHintedFibers, true},
};

// The reads of one fiber, at random pages. A program would hint in the same place: before each read.
uint64_t read_pages(FarMemory& far, const Arena& arena, uint64_t seed, uint64_t count, bool hinted) {
  Random random(seed);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    std::byte* word = arena.base + random.next() % arena.pages * kPageSize + kWordInPage;
    if (hinted) far.hint_read(word, sizeof(uint64_t));
    sum += *reinterpret_cast<volatile uint64_t*>(word);
  }
  return sum;
}

double time_threads(const Arena& arena, unsigned count, uint64_t accesses) {
  uint64_t start = 0;
  Pace pace = run_accesses(arena, kRandomRead, count, {accesses / count, 1e6}, &start);
  return count * 1e6 / pace.us;
}

double reads_per_s(FarMemory& far, Readers readers, unsigned count, uint64_t accesses) {
  if (readers == Readers::kThreads) return time_threads(far.arena(), count, accesses);
  return time_fibers(far, far.arena(), count, accesses, readers == Readers::kHintedFibers);
}

Result<json> measure(const Setup& setup, const Configuration& configuration) {
  FarMemoryConfig config = setup.far(configuration.transport);
  if (configuration.two_servers) config.address += "," + setup.second().tcp();
  auto far = FarMemory::create(config);
  if (!far.ok()) return far.status();
  uint64_t accesses = setup.settings().accesses;
  populate((*far)->arena());
  time_threads((*far)->arena(), 1, accesses / 2);  // evicts the dirty pages that populate() left near
  json rows = json::array();
  for (unsigned count : kCounts)
    rows.push_back(
        make_row({{"count", count}}, {{"reads_per_s", reads_per_s(**far, configuration.readers, count, accesses)}}));
  return rows;
}

}  // namespace

double time_fibers(FarMemory& far, const Arena& arena, unsigned count, uint64_t accesses, bool hinted) {
  std::atomic<uint64_t> sum{0};
  uint64_t begin = now_ns();
  run_fibers(1, [&] {
    std::vector<fiber> fibers;
    for (unsigned f = 0; f < count; f++) {
      fibers.emplace_back([&, f] { sum += read_pages(far, arena, begin + f, accesses / count, hinted); });
    }
  });
  return static_cast<double>(accesses) * 1e9 / static_cast<double>(now_ns() - begin);
}

Suite fibers_suite() {
  return {.name = "fibers",
          .measurements = each(measure, Axis{"configuration", kConfigurations}),
          .tables = {table("random reads of far pages, thousands a second", {"configuration"},
                           {col("", "reads_per_s", 1, 1000)})
                         .by("count")},
          .targets = {goal("{configuration}: reads a second of 16 against one", "reads_per_s", at_least(2.5),
                           {{"configuration", {"fibers, tcp", "hinted fibers, tcp"}}, {"count", 16}})
                          .over("reads_per_s", {{"count", 1}})},
          .charts = {chart("Random reads of far pages", "fibers or threads", "thousand reads/s", "count",
                           {"reads_per_s"}, {"configuration"})
                         .in(1000)}};
}

}  // namespace farside::bench
