// Workloads with the ingress path fixed to pages, fixed to objects, and chosen by Farside. Shows whether Farside
// chooses the better one.
#include <fmt/format.h>

#include <algorithm>

#include "bench/objects/lines.h"
#include "measure/random.h"
#include "report/format.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr NamedConfiguration kConfigurations[] = {{"plain array, paged", Configuration::kHintedPages},
                                                  {"objects, as pages only", Configuration::kAsPages},
                                                  {"objects, one by one only", Configuration::kOneByOne},
                                                  {"objects, hybrid", Configuration::kHybrid}};
constexpr const char* kWorkloads[] = {"random", "sequential", "groups", "mixed"};
constexpr unsigned kFibers = 8, kSlices = 20, kMeasured = 5;  // slices; the last ones are measured

json key_of(const std::string& transport, const std::string& workload, const std::string& configuration) {
  return {{"suite", "paths"}, {"transport", transport}, {"workload", workload}, {"configuration", configuration}};
}

// Chooses the line of the next access.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual uint64_t next(Random& random) = 0;
};

class Uniform : public Workload {
 public:
  explicit Uniform(uint64_t count) : count_(count) {}
  uint64_t next(Random& random) override { return random.next() % count_; }

 private:
  uint64_t count_;
};

class Sequential : public Workload {
 public:
  Sequential(uint64_t count, uint64_t start) : count_(count), at_(start % count) {}
  uint64_t next(Random&) override { return at_ = at_ + 1 < count_ ? at_ + 1 : 0; }

 private:
  uint64_t count_, at_;
};

// Groups of lines that are far apart in memory at first and are always used together, one after the other.
class Groups : public Workload {
 public:
  static constexpr uint64_t kSize = 64;
  explicit Groups(uint64_t count) : groups_(count / kSize) {}
  uint64_t next(Random& random) override {
    if (member_ == 0) group_ = random.next() % groups_;
    uint64_t at = group_ + member_ * groups_;
    member_ = (member_ + 1) % kSize;
    return at;
  }

 private:
  uint64_t groups_, group_ = 0, member_ = 0;
};

// Alternates between 64 lines of a scan over the first half and 64 random reads of the second half.
class Mixed : public Workload {
 public:
  Mixed(uint64_t count, uint64_t start) : half_(count / 2), scan_(half_, start) {}
  uint64_t next(Random& random) override {
    if (turn_++ % 128 < 64) return scan_.next(random);
    return half_ + random.next() % half_;
  }

 private:
  uint64_t half_, turn_ = 0;
  Sequential scan_;
};

std::unique_ptr<Workload> make_workload(const std::string& name, uint64_t count, uint64_t start) {
  if (name == "random") return std::make_unique<Uniform>(count);
  if (name == "sequential") return std::make_unique<Sequential>(count, start);
  if (name == "groups") return std::make_unique<Groups>(count);
  return std::make_unique<Mixed>(count, start);
}

// One slice of the workload, by fibers with different starting points. Returns seconds.
double run_slice(Lines& lines, const std::string& workload, uint64_t accesses, uint64_t seed) {
  return time_fibers(kFibers, [&](unsigned f) {
    Random random(seed + f);
    auto choose = make_workload(workload, lines.count(), f * lines.count() / kFibers + seed * 10007);
    for (uint64_t i = 0; i < accesses / kFibers; i++) lines.read(choose->next(random));
  });
}

double page_share() {
  farside_object_stats stats;
  farside_get_object_stats(&stats);
  auto all = static_cast<double>(std::max<uint64_t>(stats.segments, 1));
  return 1 - static_cast<double>(stats.segments_object_path) / all;
}

Result<json> measure(const Context& context, const std::string& transport, const NamedConfiguration& configuration,
                     const std::string& workload) {
  auto far = open_for_lines(context, transport, configuration.configuration);
  if (!far.ok()) return far.status();
  Lines lines(**far, configuration.configuration, context.settings.bytes / sizeof(Line));
  json shares = json::array();
  double seconds = 0, moved = 0;
  uint64_t slice = std::max<uint64_t>(std::min(lines.count() / 8, context.settings.accesses), kFibers * 64);
  for (unsigned i = 0; i < kSlices; i++) {
    double before = bytes_fetched(**far);
    double took = run_slice(lines, workload, slice, i + 1);
    if (i >= kSlices - kMeasured) seconds += took, moved += bytes_fetched(**far) - before;
    shares.push_back(page_share());
  }
  double accesses = static_cast<double>(slice) * kMeasured;
  return json::array(
      {make_row(key_of(transport, workload, configuration.name), {{"accesses_per_s", accesses / seconds},
                                                                  {"bytes_per_useful", moved / accesses / sizeof(Line)},
                                                                  {"page_share", shares}})});
}

std::vector<Measurement> measurements(const Context& context) {
  std::vector<Measurement> all;
  for (std::string transport : kTransports) {
    for (std::string workload : kWorkloads) {
      for (const NamedConfiguration& configuration : kConfigurations) {
        all.push_back({fmt::format("{}, {}, {}", workload, configuration.name, transport),
                       [=, &configuration] { return measure(context, transport, configuration, workload); }});
      }
    }
  }
  return all;
}

std::string text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"thousand accesses a second (bytes fetched for each useful one)"}};
  for (const char* workload : kWorkloads) rows[0].push_back(workload);
  for (const char* transport : kTransports) {
    for (const NamedConfiguration& w : kConfigurations) {
      rows.push_back({fmt::format("{}, {}", w.name, transport)});
      for (const char* workload : kWorkloads) {
        json key = key_of(transport, workload, w.name);
        rows.back().push_back(fmt::format("{} ({})", figure_text(document, key, "accesses_per_s", 1000, 0),
                                          figure_text(document, key, "bytes_per_useful")));
      }
    }
  }
  return format_table(rows);
}

// Goals: hybrid is within 5 % of the better path for every workload, and better than both for the mixed one.
std::vector<Goal> goals(const json& document) {
  std::vector<Goal> goals;
  for (const char* transport : kTransports) {
    for (std::string workload : kWorkloads) {
      auto pace = [&](const char* configuration) {
        return figure(document, key_of(transport, workload, configuration), "accesses_per_s");
      };
      double best = std::max(pace("objects, as pages only"), pace("objects, one by one only"));
      add_ratio_goal(&goals, fmt::format("{} over {}: hybrid against the better path", workload, transport),
                     pace("objects, hybrid"), best, workload == "mixed" ? 1.0 : 0.95, true);
    }
  }
  return goals;
}

// As figure 7 of Atlas: the share of segments that are fetched as pages grows as objects that are used together are
// moved to the same segments.
std::vector<LineChart> charts(const json& document) {
  LineChart chart{"Segments fetched as pages, hybrid, over tcp", "time", "share", kSlices, 1.05, {}};
  for (const char* workload : kWorkloads) {
    LineChart::Series series{workload, {}};
    const json& row = *find_row(document, key_of("tcp", workload, "objects, hybrid"));
    for (const json& share : row["page_share"])
      series.points.emplace_back(series.points.size() + 1, share.get<double>());
    chart.series.push_back(series);
  }
  return {chart};
}

}  // namespace

const Suite kPaths = {"paths", measurements, text, goals, charts};

}  // namespace farside::bench::objects_bench
