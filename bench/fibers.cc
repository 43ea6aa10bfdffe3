#include "bench/fibers.h"

#include <fmt/format.h>

#include <atomic>

#include "base/clock.h"
#include "farside/fiber.hpp"
#include "measure/far_memory.h"
#include "measure/process.h"
#include "measure/statistics.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr unsigned kCounts[] = {1, 4, 16, 64};
constexpr double kGoal = 2.5;  // 16 fibers against one
constexpr size_t kWordInPage = 64;

// The reads of one fiber, at random pages. A program would hint in the same place: before each read.
uint64_t read_pages(FarMemory& far, const Arena& arena, uint64_t seed, uint64_t count, bool hinted) {
  uint64_t random = seed * 0x9e3779b97f4a7c15 | 1, sum = 0;
  for (uint64_t i = 0; i < count; i++) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    std::byte* word = arena.base + random % arena.pages * kPageSize + kWordInPage;
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

enum class Link { kShm, kTcp, kTcpPool };  // kTcpPool: slabs on two servers

struct Configuration {
  const char* name;
  Link link;
  std::function<double(FarMemory&, const Arena&, unsigned count, uint64_t accesses)> run;
};

const std::vector<Configuration>& configurations() {
  static const std::vector<Configuration> all = {
      {"fibers, tcp", Link::kTcp,
       [](FarMemory& f, const Arena& a, unsigned n, uint64_t m) { return time_fibers(f, a, n, m, false); }},
      {"hinted fibers, tcp", Link::kTcp,
       [](FarMemory& f, const Arena& a, unsigned n, uint64_t m) { return time_fibers(f, a, n, m, true); }},
      {"threads, tcp", Link::kTcp,
       [](FarMemory&, const Arena& a, unsigned n, uint64_t m) { return time_threads(a, n, m); }},
      {"hinted fibers, shm", Link::kShm,
       [](FarMemory& f, const Arena& a, unsigned n, uint64_t m) { return time_fibers(f, a, n, m, true); }},
      {"hinted fibers, tcp, 2 servers", Link::kTcpPool,
       [](FarMemory& f, const Arena& a, unsigned n, uint64_t m) { return time_fibers(f, a, n, m, true); }},
  };
  return all;
}

// Servers of one token, in processes of their own.
struct Servers {
  std::unique_ptr<ServerProcess> first, second;
  std::string address(Link link) const {
    if (link == Link::kShm) return first->shm();
    return link == Link::kTcp ? first->tcp() : first->tcp() + "," + second->tcp();
  }
};

Result<Servers> start_servers(const SignalHold& hold, uint64_t bytes) {
  auto first = ServerProcess::start(hold, bytes);
  if (!first.ok()) return first.status();
  auto second = ServerProcess::start(hold, bytes, (*first)->token());
  if (!second.ok()) return second.status();
  return Servers{std::move(*first), std::move(*second)};
}

// All counts of one configuration, in its own process: reads per second for each.
Result<json> measure_configuration(const FibersSettings& s, const Servers& servers,
                                   const Configuration& configuration) {
  auto near = static_cast<uint64_t>(s.local * static_cast<double>(s.bytes));
  auto far = FarMemory::create({servers.address(configuration.link), servers.first->token(), s.bytes, near});
  if (!far.ok()) return far.status();
  Arena arena = (*far)->arena();
  populate(arena);
  time_threads(arena, 1, s.accesses / 2);  // evicts the dirty pages that populate() left near
  json rates = json::array();
  for (unsigned count : kCounts) rates.push_back(configuration.run(**far, arena, count, s.accesses));
  return rates;
}

json configuration_json(const Configuration& configuration, const std::vector<json>& runs) {
  json points = json::array();
  for (size_t i = 0; i < std::size(kCounts); i++) {
    std::vector<double> rates;
    for (const json& run : runs) rates.push_back(run[i]);
    points.push_back({{"count", kCounts[i]}, {"reads_per_s", summary(rates)}});
  }
  return {{"name", configuration.name}, {"points", points}};
}

double rate_of(const json& configuration, size_t point) {
  return configuration["points"][point]["reads_per_s"]["median"];
}

std::vector<Goal> goals_of(const json& document) {
  std::vector<Goal> goals;
  for (const json& configuration : document["configurations"]) {
    std::string name = configuration["name"];
    if (!name.ends_with("fibers, tcp")) continue;
    goals.push_back({name + ": reads a second of 16 against one", rate_of(configuration, 2) / rate_of(configuration, 0),
                     kGoal, true, "x"});
  }
  return goals;
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

Result<json> measure_fibers(const FibersSettings& s) {
  SignalHold hold;
  auto servers = start_servers(hold, 4 * s.bytes);
  if (!servers.ok()) return servers.status();
  Progress progress(configurations().size() * s.repetitions, s.quiet);
  std::vector<std::vector<json>> runs(configurations().size());
  for (unsigned repetition = 0; repetition < s.repetitions; repetition++) {
    for (size_t w = 0; w < configurations().size(); w++) {
      progress.step(configurations()[w].name);
      auto made = run_in_child(hold, [&] { return measure_configuration(s, *servers, configurations()[w]); });
      if (!made.ok()) return made.status();
      runs[w].push_back(*made);
    }
  }
  json document = {
      {"machine", machine_json()},
      {"settings", {{"bytes", s.bytes}, {"local", s.local}, {"accesses", s.accesses}, {"repetitions", s.repetitions}}}};
  for (size_t w = 0; w < configurations().size(); w++)
    document["configurations"].push_back(configuration_json(configurations()[w], runs[w]));
  for (const Goal& goal : goals_of(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::string fibers_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n\n";
  std::vector<std::vector<std::string>> rows = {{"random reads of far pages, thousands a second"}};
  for (unsigned count : kCounts) rows[0].push_back(fmt::format("{}", count));
  for (const json& configuration : document["configurations"]) {
    rows.push_back({configuration["name"]});
    for (size_t i = 0; i < std::size(kCounts); i++)
      rows.back().push_back(fmt::format("{:.1f}", rate_of(configuration, i) / 1000));
  }
  text += format_table(rows) + "\n";
  for (const Goal& goal : goals_of(document)) text += goal.text() + "\n";
  return text;
}

std::vector<LineChart> fibers_charts(const json& document) {
  double largest = 0;
  LineChart chart{
      "Random reads of far pages", "fibers or threads", "thousand reads/s", kCounts[std::size(kCounts) - 1], 0, {}};
  for (const json& configuration : document["configurations"]) {
    LineChart::Series series{configuration["name"], {}};
    for (size_t i = 0; i < std::size(kCounts); i++) {
      series.points.emplace_back(kCounts[i], rate_of(configuration, i) / 1000);
      largest = std::max(largest, rate_of(configuration, i) / 1000);
    }
    chart.series.push_back(series);
  }
  chart.y_max = largest * 1.1;
  return {chart};
}

}  // namespace farside::bench
