// `farside bench hints`: the cost of the inline guard of a hint (include/farside/farside.h) on near pages, where the
// guard is all that a hint executes. Time is taken from the time stamp counter; instructions are counted by
// single-stepping a child process.

#include "base/bits.h"
#include "base/clock.h"
#include "bench/suites.h"
#include "farside/farside.h"
#include "measure/instructions.h"
#include "pager/pages/page_word.h"

// The variable that the guards read and the function behind them. In a program both belong to libfarside or the preload
// library; here farside_view is set for each case.
extern "C" {
struct farside_view farside_view = {0, 0, nullptr};
void farside_hint_slow(const void*, size_t, unsigned) {}
}

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr unsigned kPages = 64;
constexpr uint64_t kTimed = 1'000'000, kStepped = 500;  // hints

using Loop = void (*)(const std::byte* memory, uint64_t count);

// A loop over words of near pages with a hint before each use. The asm stands for the use: it only keeps the address
// alive.
template <typename Hint>
__attribute__((noinline)) void loop_of(const std::byte* memory, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const std::byte* word = memory + i % kPages * kPageSize + 64;
    Hint()(word);
    asm volatile("" : : "r"(word) : "memory");
  }
}

struct None {
  void operator()(const std::byte*) {}
};
template <unsigned kOptions>
struct Guard {
  void operator()(const std::byte* word) { farside_hint(word, sizeof(uint64_t), kOptions); }
};

struct Case {
  const char* name;
  bool is_far;  // the guard sees far memory; otherwise a process without Farside
  Loop loop;
};

constexpr Case kCases[] = {
    {"read", true, loop_of<Guard<FARSIDE_READ>>},
    {"write, page is dirty", true, loop_of<Guard<FARSIDE_WRITE>>},
    {"seq, inside a page", true, loop_of<Guard<FARSIDE_READ | FARSIDE_SEQ>>},
    {"not under Farside", false, loop_of<Guard<FARSIDE_READ>>},
};

double cycles_per_turn(Loop loop, const std::byte* memory) {
  uint64_t start = ticks();
  loop(memory, kTimed);
  return static_cast<double>(ticks() - start) / kTimed;
}

json instructions_per_turn(Loop loop, const std::byte* memory) {
  auto with = count_instructions([&] { loop(memory, kStepped); });
  auto without = count_instructions([&] { loop_of<None>(memory, kStepped); });
  if (!with || !without) return nullptr;
  return static_cast<double>(*with - *without) / kStepped;
}

Result<json> measure(const Setup&, const Case& c) {
  std::vector<std::byte> memory(kPages * kPageSize);
  auto word =
      pager::PageWord().with_state(pager::PageState::kNear).with(pager::PageWord::kHot | pager::PageWord::kDirty);
  std::vector<uint64_t> words(kPages, word.bits());
  farside_view = {reinterpret_cast<uintptr_t>(memory.data()), c.is_far ? kPages * kPageSize : 0, words.data()};
  double cycles = -cycles_per_turn(loop_of<None>, memory.data());
  cycles += cycles_per_turn(c.loop, memory.data());
  return json{{"cycles", cycles},
              {"ns", cycles * 1000 / ticks_per_us()},
              {"instructions", instructions_per_turn(c.loop, memory.data())}};
}

}  // namespace

Suite hints_suite() {
  return {
      .name = "hints",
      .measurements = each(measure, Axis{"case", kCases}),
      .tables = {table("a hint on near memory", {"case"},
                       {col("instructions", "instructions"), col("cycles", "cycles"), col("ns", "ns", 2)})
                     .with("In addition to the same loop without hints. Cycles are those of the time stamp counter; "
                           "instructions need ptrace.")}};
}

}  // namespace farside::bench
