// Derefs of objects most of which are far, beside paging of the same data.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "cli/bench/figures.h"
#include "cli/bench/objects/objects.h"
#include "cli/bench/random.h"
#include "farside/fiber.hpp"
#include "farside/ptr.hpp"

namespace farside::cli::bench::objects_bench {
namespace {

using nlohmann::json;

struct Page {
  uint64_t words[512];
};

const char* name_of(Way way) {
  switch (way) {
    case Way::kPage:
      return "page";
    case Way::kObject:
      return "object";
    default:
      return "hybrid";
  }
}

Result<std::unique_ptr<FarMemory>> open_far(const FarRun& run, Way way) {
  setenv("FARSIDE_PATHS", name_of(way), 1);
  const ObjectsSettings& s = run.settings;
  bool paged = way == Way::kPages;
  return FarMemory::create({.address = run.tcp ? run.server.tcp() : run.server.shm(),
                            .token = run.server.token(),
                            .bytes = paged ? s.bytes : 0,
                            .local = static_cast<uint64_t>(s.local * static_cast<double>(s.bytes)),
                            .object_bytes = paged ? 0 : 3 * s.bytes});
}

// Lines as far objects, or in a plain array that is paged. Each holds its number.
class Data {
 public:
  Data(FarMemory& far, Way way, uint64_t count) : far_(far), count_(count), paged_(way == Way::kPages) {
    if (paged_) array_ = reinterpret_cast<Line*>(far.arena().base);
    else pointers_.resize(count);
    for (uint64_t i = 0; i < count; i++) {
      if (paged_) array_[i].words[0] = i;
      else pointers_[i] = make_unique<Line>(Line{{i}});
    }
    os::nanosleep_ns(20'000'000);  // segments that have left are judged
  }
  uint64_t count() const { return count_; }
  uint64_t read(uint64_t i) {
    if (paged_) {
      auto* line = reinterpret_cast<std::byte*>(array_ + i);
      far_.hint_read(line, sizeof(Line));
      return *static_cast<volatile uint64_t*>(array_[i].words);
    }
    deref_scope scope;
    return pointers_[i].deref(scope)->words[0];
  }

 private:
  FarMemory& far_;
  uint64_t count_;
  bool paged_;
  Line* array_ = nullptr;
  std::vector<unique_ptr<Line>> pointers_;
};

// ---- Misses ----

double us(std::vector<uint32_t>& ticks_taken) {
  return static_cast<double>(quantile(ticks_taken, 0.5)) / ticks_per_us();
}

template <typename Object>
double time_misses(FarMemory& far, uint64_t bytes, uint64_t accesses) {
  std::vector<unique_ptr<Object>> objects(bytes / sizeof(Object));
  for (uint64_t i = 0; i < objects.size(); i++) objects[i] = make_unique<Object>(Object{{i}});
  os::nanosleep_ns(20'000'000);
  Random random(3);
  std::vector<uint32_t> misses;
  for (uint64_t i = 0; i < accesses; i++) {
    uint64_t at = random.next() % objects.size();
    uint64_t place = *detail::access::word(objects[at]) >> 16;
    bool is_far = far.pager().word(place).is(pager::PageState::kFar);
    deref_scope scope;
    uint64_t start = ticks();
    uint64_t number = objects[at].deref(scope)->words[0];
    if (is_far) misses.push_back(static_cast<uint32_t>(ticks() - start));
    if (number != at) die("object {} holds {}", at, number);
  }
  return us(misses);
}

double time_transport(FarMemory& far, uint32_t bytes, uint64_t reads) {
  Status status;
  transport::Channel* channel = far.pager().store()->open_channel(&status);
  if (!channel) die("{}", status.text());
  std::vector<std::byte> buffer(bytes);
  std::vector<uint32_t> took;
  Random random(5);
  for (uint64_t i = 0; i < reads; i++) {
    uint64_t at = random.next() % 4096 * kPageSize;
    uint64_t start = ticks();
    if (const std::byte* direct = channel->direct(at, bytes)) {
      memcpy(buffer.data(), direct, bytes);
    } else {
      transport::Segment segment = {at, bytes, buffer.data()};
      transport::Token token = 0;
      if (channel->submit_read({&segment, 1}, &token) != 0 || channel->wait(token, 1'000'000'000) != 0)
        die("a read of {} bytes failed", bytes);
    }
    took.push_back(static_cast<uint32_t>(ticks() - start));
  }
  far.pager().store()->close_channel(channel);
  return us(took);
}

// ---- Workloads: which line is next ----

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

// Groups of lines that were made far from each other and are always used together, one after the other.
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

// A scan over the first half, and reads at random places of the second, in turns of 64.
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

// So many fibers on one worker, each with a share of the accesses. Seconds.
double run_fibers(Data& data, const std::string& workload, unsigned fibers, uint64_t accesses, uint64_t seed) {
  uint64_t begin = now_ns();
  auto work = [&](unsigned f) {
    Random random(seed + f);
    auto choose = make_workload(workload, data.count(), f * data.count() / fibers + seed * 10007);
    for (uint64_t i = 0; i < accesses / fibers; i++) {
      uint64_t at = choose->next(random);
      if (data.read(at) != at) die("line {} holds something else", at);
    }
  };
  fiber::run(1, [&] {
    std::vector<fiber::Fiber> all;
    for (unsigned f = 0; f < fibers; f++) all.emplace_back([&, f] { work(f); });
  });
  return static_cast<double>(now_ns() - begin) / 1e9;
}

double bytes_fetched(FarMemory& far) { return static_cast<double>(far.stats().get(pager::Counter::kBytesFetched)); }

}  // namespace

Result<json> measure_misses(const FarRun& run) {
  auto far = open_far(run, Way::kObject);
  if (!far.ok()) return far.status();
  uint64_t most = std::min<uint64_t>(run.settings.accesses, 50000);
  double line = time_misses<Line>(**far, run.settings.bytes, most);
  double page = time_misses<Page>(**far, run.settings.bytes, most);
  double line_alone = time_transport(**far, sizeof(Line), most), page_alone = time_transport(**far, sizeof(Page), most);
  return json{
      {"line_us", line}, {"line_transport_us", line_alone}, {"page_us", page}, {"page_transport_us", page_alone}};
}

Result<json> measure_fibers_on(const FarRun& run, Way way, unsigned fibers) {
  auto far = open_far(run, way);
  if (!far.ok()) return far.status();
  Data data(**far, way, run.settings.bytes / sizeof(Line));
  uint64_t accesses = run.settings.accesses;
  run_fibers(data, "random", fibers, accesses / 4, 1);
  double before = bytes_fetched(**far);
  double seconds = run_fibers(data, "random", fibers, accesses, 2);
  double useful = static_cast<double>(accesses) * sizeof(Line);
  return json{{"reads_per_s", static_cast<double>(accesses) / seconds},
              {"bytes_per_useful", (bytes_fetched(**far) - before) / useful}};
}

std::vector<std::string> workload_names() { return {"random", "sequential", "groups", "mixed"}; }

Result<json> measure_workload(const FarRun& run, Way way, const std::string& workload) {
  constexpr unsigned kFibers = 8, kSlices = 20, kMeasured = 5;  // the last slices are measured
  auto far = open_far(run, way);
  if (!far.ok()) return far.status();
  Data data(**far, way, run.settings.bytes / sizeof(Line));
  json shares = json::array();
  double seconds = 0, moved = 0;
  uint64_t slice = std::max<uint64_t>(data.count() / 8, kFibers * 64);
  for (unsigned i = 0; i < kSlices; i++) {
    double before = bytes_fetched(**far);
    double took = run_fibers(data, workload, kFibers, slice, i + 1);
    if (i >= kSlices - kMeasured) seconds += took, moved += bytes_fetched(**far) - before;
    farside_object_stats stats;
    farside_get_object_stats(&stats);
    double all = static_cast<double>(std::max<uint64_t>(stats.segments, 1));
    shares.push_back(1 - static_cast<double>(stats.segments_object_path) / all);
  }
  double accesses = static_cast<double>(slice) * kMeasured;
  return json{{"accesses_per_s", accesses / seconds},
              {"bytes_per_useful", moved / accesses / sizeof(Line)},
              {"page_share", way == Way::kPages ? json() : shares}};
}

}  // namespace farside::cli::bench::objects_bench
