#include "bench/objects/lines.h"

#include "base/clock.h"
#include "base/log.h"
#include "farside/fiber.hpp"
#include "measure/random.h"

namespace farside::bench::objects_bench {
namespace {

Paths paths_of(Configuration configuration) {
  if (configuration == Configuration::kAsPages) return Paths::kPageOnly;
  return configuration == Configuration::kOneByOne ? Paths::kObjectOnly : Paths::kHybrid;
}

bool is_paged(Configuration configuration) {
  return configuration == Configuration::kPages || configuration == Configuration::kHintedPages;
}

}  // namespace

Line make_line(uint64_t i) {
  Random random(i);
  return {{i, random.next(), random.next(), random.next(), random.next()}};
}

Result<std::unique_ptr<FarMemory>> open_for_lines(const Setup& setup, const char* transport,
                                                  Configuration configuration) {
  FarMemoryConfig config = setup.far(transport);
  config.bytes = 0;
  (is_paged(configuration) ? config.bytes : config.more_bytes) =
      (is_paged(configuration) ? 1 : 3) * setup.settings().bytes;
  return open_with_objects(config, paths_of(configuration));
}

Lines::Lines(FarMemory& far, Configuration configuration, uint64_t count)
    : count_(count),
      hinted_(configuration == Configuration::kHintedPages ? &far : nullptr),
      array_(is_paged(configuration) ? reinterpret_cast<Line*>(far.arena().base) : nullptr),
      owners_(is_paged(configuration) ? 0 : count) {
  fill();
}

Lines::Lines(std::byte* memory, uint64_t count) : count_(count), array_(reinterpret_cast<Line*>(memory)) { fill(); }

void Lines::fill() {
  for (uint64_t i = 0; i < count_; i++) {
    if (array_) array_[i] = make_line(i);
    else owners_[i] = make_unique<Line>(make_line(i));
  }
  settle();
}

void Lines::read(uint64_t i) {
  if (hinted_) hinted_->hint_read(reinterpret_cast<std::byte*>(array_ + i), sizeof(Line));
  deref_scope scope;
  const Line* line = array_ ? array_ + i : owners_[i].deref(scope);
  if (*static_cast<const volatile uint64_t*>(line->words) != i) die("line {} has wrong content", i);
}

void Lines::write(uint64_t i) {
  deref_scope scope;
  Line* line = array_ ? array_ + i : owners_[i].deref_mut(scope);
  *static_cast<volatile uint64_t*>(line->words + 7) = i;
  if (line->words[0] != i) die("line {} has wrong content", i);
}

double time_fibers(unsigned fibers, const std::function<void(unsigned)>& work) {
  uint64_t begin = now_ns();
  run_fibers(1, [&] {
    std::vector<fiber> all;
    for (unsigned f = 0; f < fibers; f++) all.emplace_back([&, f] { work(f); });
  });
  return static_cast<double>(now_ns() - begin) / 1e9;
}

double bytes_fetched(FarMemory& far) { return static_cast<double>(far.stats().get(pager::Counter::kBytesFetched)); }

void settle() { os::nanosleep_ns(20'000'000); }

}  // namespace farside::bench::objects_bench
