// Workloads with the ingress path fixed to pages, fixed to objects, and chosen by Farside. Shows whether Farside
// chooses the better one.
#include <fmt/format.h>

#include <algorithm>

#include "bench/objects/lines.h"
#include "measure/random.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr NamedConfiguration kConfigurations[] = {{"plain array, paged", Configuration::kHintedPages},
                                                  {"objects, as pages only", Configuration::kAsPages},
                                                  {"objects, one by one only", Configuration::kOneByOne},
                                                  {"objects, hybrid", Configuration::kHybrid}};
constexpr const char* kWorkloads[] = {"random", "sequential", "groups", "mixed"};
constexpr unsigned kFibers = 8, kSlices = 20, kMeasured = 5;  // slices; the last ones are measured

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
  auto target = [](const char* workload, double limit) {
    return Target{
        .text = "{workload} over {transport}: hybrid against the better path",
        .at = {{"workload", workload}, {"configuration", "objects, hybrid"}},
        .figure = "accesses_per_s",
        .limit = limit,
        .at_least = true,
        .per = "accesses_per_s",
        .beside = {{{"configuration", "objects, as pages only"}}, {{"configuration", "objects, one by one only"}}}};
  };
  return {.name = "paths",
          .measurements =
              [](const Setup& s) {
                return measure_each(s, measure, Axis{"transport", kTransports}, Axis{"workload", kWorkloads},
                                    Axis{"configuration", kConfigurations});
              },
          .tables = {{.head = "thousand accesses a second",
                      .rows = {"configuration", "transport"},
                      .columns = {{"", "accesses_per_s", 0, 1000}},
                      .across = "workload"},
                     {.head = "bytes fetched for each useful one",
                      .rows = {"configuration", "transport"},
                      .columns = {{"", "bytes_per_useful"}},
                      .across = "workload"}},
          .targets = {target("random", 0.95), target("sequential", 0.95), target("groups", 0.95), target("mixed", 1)},
          .charts = {{"Segments fetched as pages, hybrid, over tcp",
                      "time",
                      "share",
                      nullptr,
                      {"page_share"},
                      {"workload"},
                      {},
                      1,
                      {{"transport", "tcp"}, {"configuration", "objects, hybrid"}},
                      kSlices,
                      1.05}}};
}

}  // namespace farside::bench::objects_bench
