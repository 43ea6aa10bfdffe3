// Workloads with the ingress path fixed to pages, fixed to objects, and chosen by Farside. Shows whether Farside
// chooses the better one.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "bench/objects/lines.h"
#include "measure/random.h"
#include "pager/policy/simulator.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr NamedConfiguration kConfigurations[] = {{"plain array, paged", Configuration::kHintedPages},
                                                  {kAsPages, Configuration::kAsPages},
                                                  {kOneByOne, Configuration::kOneByOne},
                                                  {kHybrid, Configuration::kHybrid}};
constexpr const char* kWorkloads[] = {"random", "sequential", "groups", "mixed", "zipf 0.8", "zipf 1.0", "zipf 1.2"};
constexpr unsigned kFibers = 8, kSlices = 20, kMeasured = 5;  // slices; the last ones are measured

// Chooses the line of the next access.
using Choose = std::function<uint64_t(Random& random)>;

Choose sequential(uint64_t count, uint64_t start) {
  return [count, at = start % count](Random&) mutable { return at = at + 1 < count ? at + 1 : 0; };
}

// Groups of lines that are far apart in memory at first and are always used together, one after the other.
Choose groups(uint64_t count) {
  constexpr uint64_t kSize = 64;
  return [all = count / kSize, group = uint64_t{0}, member = uint64_t{0}](Random& random) mutable {
    if (member == 0) group = random.next() % all;
    uint64_t at = group + member * all;
    member = (member + 1) % kSize;
    return at;
  };
}

// Alternates between 64 lines of a scan over the first half and 64 random reads of the second half.
Choose mixed(uint64_t count, uint64_t start) {
  return [half = count / 2, scan = sequential(count / 2, start), turn = 0u](Random& random) mutable {
    return turn++ % 128 < 64 ? scan(random) : half + random.next() % half;
  };
}

// The lines that are used most are spread over all pages.
Choose zipf(uint64_t count, double exponent, uint64_t start) {
  static std::map<std::pair<uint64_t, double>, pager::Trace> traces;
  pager::Trace& trace = traces[{count, exponent}];
  if (trace.accesses.empty()) trace = pager::zipf_trace(static_cast<pager::PageIndex>(count), exponent, 4 * count, 1);
  return [&lines = trace.accesses, at = start](Random&) mutable { return lines[at++ % lines.size()]; };
}

Choose make_workload(const std::string& name, uint64_t count, uint64_t start) {
  if (name.starts_with("zipf")) return zipf(count, std::stod(name.substr(5)), start);
  if (name == "random") return [count](Random& random) { return random.next() % count; };
  if (name == "sequential") return sequential(count, start);
  return name == "groups" ? groups(count) : mixed(count, start);
}

// One slice of the workload, by fibers with different starting points. Returns seconds.
double run_slice(Lines& lines, const std::string& workload, uint64_t accesses, uint64_t seed) {
  return time_fibers(kFibers, [&](unsigned f) {
    Random random(seed + f);
    auto choose = make_workload(workload, lines.count(), f * lines.count() / kFibers + seed * 10007);
    for (uint64_t i = 0; i < accesses / kFibers; i++) lines.read(choose(random));
  });
}

double page_share() {
  farside_object_stats stats;
  farside_get_object_stats(&stats);
  auto all = static_cast<double>(std::max<uint64_t>(stats.segments, 1));
  return 1 - static_cast<double>(stats.segments_object_path) / all;
}

Result<json> measure(const Setup& setup, const char* transport, const char* workload,
                     const NamedConfiguration& configuration) {
  auto far = open_for_lines(setup, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, setup.settings().bytes / sizeof(Line));
  json shares = json::array();
  double seconds = 0, moved = 0;
  uint64_t slice = std::max<uint64_t>(std::min(lines.count() / 8, setup.settings().accesses), kFibers * 64);
  for (unsigned i = 0; i < kSlices; i++) {
    double before = bytes_fetched(**far);
    double took = run_slice(lines, workload, slice, i + 1);
    if (i >= kSlices - kMeasured) seconds += took, moved += bytes_fetched(**far) - before;
    shares.push_back({i + 1, page_share()});
  }
  double accesses = static_cast<double>(slice) * kMeasured;
  return json{{"accesses_per_s", accesses / seconds},
              {"bytes_per_useful", moved / accesses / sizeof(Line)},
              {"page_share", shares}};
}

}  // namespace

// Hybrid is within 5 % of the better path for every workload, and better than both for the mixed one. The chart is as
// figure 7 of Atlas: the share of segments that are fetched as pages grows as objects that are used together are moved
// to the same segments.
Suite paths_suite() {
  auto against_better = [](std::vector<const char*> workloads, double limit) {
    return goal("{workload} over {transport}: hybrid against the better path", "accesses_per_s", at_least(limit),
                {{"workload", workloads}, {"configuration", kHybrid}})
        .over("accesses_per_s", {{"configuration", {kAsPages, kOneByOne}}});
  };
  auto by_workload = [](const char* head, Column column) {
    return table(head, {"configuration", "transport"}, {column}).by("workload");
  };
  return {.name = "paths",
          .measurements = each(measure, Axis{"transport", kTransports}, Axis{"workload", kWorkloads},
                               Axis{"configuration", kConfigurations}),
          .tables = {by_workload("thousand accesses a second", col("", "accesses_per_s", 0, 1000)),
                     by_workload("bytes fetched for each useful one", col("", "bytes_per_useful"))},
          .targets = {against_better({"random", "sequential", "groups"}, 0.95), against_better({"mixed"}, 1)},
          .charts = {chart("Segments fetched as pages, hybrid, over tcp", "time", "share", nullptr, {"page_share"},
                           {"workload"})
                         .of({{"transport", "tcp"}, {"configuration", kHybrid}})
                         .up_to(kSlices, 1.05)}};
}

}  // namespace farside::bench::objects_bench
