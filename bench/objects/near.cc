// Dereferences of near objects: their cost when nothing is remote.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/clock.h"
#include "bench/objects/lines.h"
#include "measure/instructions.h"
#include "measure/random.h"
#include "measure/statistics.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr unsigned kHot = 64;            // objects in the hot loops
constexpr uint64_t kStepped = 640;       // dereferences that are single-stepped
constexpr uint64_t kChased = 2'000'000;  // lines: 128 MB, larger than the caches
constexpr unsigned kRuns = 7;

struct Hot {
  std::vector<unique_ptr<Line>> far;
  std::vector<std::unique_ptr<Line>> raw;
};

inline void use(const void* pointer) { asm volatile("" : : "r"(pointer) : "memory"); }

__attribute__((noinline)) void raw_loop(Hot& hot, uint64_t turns) {
  for (uint64_t i = 0; i < turns; i++) use(hot.raw[i % kHot].get());
}
__attribute__((noinline)) void empty_loop(Hot& hot, uint64_t turns) {
  deref_scope scope;
  for (uint64_t i = 0; i < turns; i++) use(&hot.far[i % kHot]);
}
__attribute__((noinline)) void hoisted_loop(Hot& hot, uint64_t turns) {
  deref_scope scope;
  for (uint64_t i = 0; i < turns; i++) use(hot.far[i % kHot].deref(scope));
}
__attribute__((noinline)) void hoisted_mut_loop(Hot& hot, uint64_t turns) {
  deref_scope scope;
  for (uint64_t i = 0; i < turns; i++) use(hot.far[i % kHot].deref_mut(scope));
}
__attribute__((noinline)) void scoped_loop(Hot& hot, uint64_t turns) {
  for (uint64_t i = 0; i < turns; i++) {
    deref_scope scope;
    use(hot.far[i % kHot].deref(scope));
  }
}

struct Case {
  const char* name;
  void (*loop)(Hot&, uint64_t);
};
constexpr Case kCases[] = {{"std::unique_ptr", raw_loop},
                           {"deref, scope hoisted", hoisted_loop},
                           {"deref_mut, scope hoisted", hoisted_mut_loop},
                           {"scope and deref", scoped_loop}};

double ns_per_turn(const std::function<void()>& work, uint64_t turns) {
  uint64_t start = ticks();
  work();
  return static_cast<double>(ticks() - start) / static_cast<double>(turns) * 1000 / ticks_per_us();
}

json measure_case(const Case& c, Hot& hot, uint64_t turns) {
  std::vector<double> ns;
  for (unsigned i = 0; i < kRuns; i++) ns.push_back(ns_per_turn([&] { c.loop(hot, turns); }, turns));
  json made = {{"ns", median(ns)}, {"instructions", nullptr}};
  auto of = [&](auto loop)
      -> std::optional<uint64_t> {  // of kStepped more iterations: the instructions around the loop cancel
    auto once = count_instructions([&] { loop(hot, kStepped); });
    auto twice = count_instructions([&] { loop(hot, 2 * kStepped); });
    return once && twice ? std::optional(*twice - *once) : std::nullopt;
  };
  auto with = of(c.loop), without = of(empty_loop);
  if (with && without) made["instructions"] = (static_cast<double>(*with) - static_cast<double>(*without)) / kStepped;
  return made;
}

// Each line contains the index of the next one, so that no two dereferences overlap. The order is the same for all
// kinds of pointers.
template <typename Pointer, typename Deref>
double chase(std::vector<Pointer>& pointers, uint64_t steps, Deref deref) {
  uint64_t at = 0;
  double ns = ns_per_turn(
      [&] {
        for (uint64_t i = 0; i < steps; i++) at = deref(pointers[at])->words[0];
      },
      steps);
  use(&at);
  return ns;
}

// One cycle through all lines, in random order (Sattolo).
std::vector<uint64_t> cycle(uint64_t count) {
  std::vector<uint64_t> next(count);
  for (uint64_t i = 0; i < count; i++) next[i] = i;
  Random random(7);
  for (uint64_t i = count - 1; i > 0; i--) std::swap(next[i], next[random.next() % i]);
  return next;
}

json measure_chase(uint64_t turns) {
  std::vector<uint64_t> next = cycle(kChased);
  std::vector<unique_ptr<Line>> far(kChased);
  std::vector<std::unique_ptr<Line>> raw(kChased);
  for (uint64_t i = 0; i < kChased; i++) {
    far[i] = make_unique<Line>(Line{{next[i]}});
    raw[i] = std::make_unique<Line>(Line{{next[i]}});
  }
  std::vector<double> raw_ns, far_ns, ratio;
  for (unsigned i = 0; i < kRuns; i++) {
    raw_ns.push_back(chase(raw, turns, [](const auto& p) { return p.get(); }));
    deref_scope scope;
    far_ns.push_back(chase(far, turns, [&](const auto& p) { return p.deref(scope); }));
    ratio.push_back(far_ns.back() / raw_ns.back());
  }
  return {{"raw_ns", median(raw_ns)}, {"far_ns", median(far_ns)}, {"ratio", median(ratio)}};
}

Result<json> measure(const Setup& setup) {
  FarMemoryConfig config = setup.far("shm");
  config.bytes = 0;
  config.local = config.more_bytes = 4 * kChased * sizeof(Line);
  auto far = open_with_objects(config);
  if (!far.ok()) return far.status();
  uint64_t turns = 10 * setup.settings().accesses;  // dereferences that are timed: each takes nanoseconds
  json rows = json::array();
  {
    Hot hot;
    for (unsigned i = 0; i < kHot; i++) {
      hot.far.push_back(make_unique<Line>());
      hot.raw.push_back(std::make_unique<Line>());
    }
    for (const Case& c : kCases) rows.push_back(make_row({{"case", c.name}}, measure_case(c, hot, turns)));
    rows.push_back(make_row({{"case", "chase through 128 MB"}}, measure_chase(turns)));
  }
  return rows;
}

}  // namespace

Suite near_suite() {
  auto below = [](const char* text, const char* name, const char* figure, double limit, const char* unit) {
    return goal(text, figure, at_most(limit, unit), {{"case", name}});
  };
  constexpr const char *kNs = "{case}: ns, 64 hot objects", *kInstructions = "{case}: instructions";
  return {.name = "near",
          .measurements = each(measure),
          .tables = {table("near objects", {"case"}, {col("ns", "ns", 2), col("instructions", "instructions")})
                         .with("Instructions in addition to the same loop without the dereference."),
                     table("ns per dereference", {"case"},
                           {col("raw", "raw_ns"), col("far", "far_ns"), col("ratio", "ratio", 2)})},
          .targets = {below(kNs, "deref, scope hoisted", "ns", 1.7, " ns"),
                      below(kInstructions, "deref, scope hoisted", "instructions", 10, ""),
                      below(kNs, "deref_mut, scope hoisted", "ns", 1.7, " ns"),
                      below(kInstructions, "deref_mut, scope hoisted", "instructions", 10, ""),
                      below(kNs, "scope and deref", "ns", 4.8, " ns"),
                      below("{case}: deref against raw", "chase through 128 MB", "ratio", 1.10, "x")}};
}

}  // namespace farside::bench::objects_bench
