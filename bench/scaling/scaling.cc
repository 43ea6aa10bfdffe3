// `farside bench scaling`: simulates the pager on machines with more cores than this one. The simulation takes costs
// measured on this machine, is validated against measurements on this machine, and is then run with published costs of
// a large machine.
#include "bench/scaling/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/scaling/calibrate.h"
#include "report/files.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

constexpr unsigned kManyThreads = 48;  // MAGE's figures 5, 6, 16 and 18
constexpr unsigned kSpareCores = 8;    // cores for the evictors
constexpr unsigned kLongSpin = 3000;   // iterations: about as long as a batch takes
constexpr double kMinGain = 1.01;      // factor below which a change is not worth making
constexpr unsigned kTierThreads = 64;
constexpr unsigned kFramePages = 512;
constexpr double kPage100G = 4096 * 8 / 100e3;      // us of a page at 100 Gbit/s
constexpr double kTcpLatency = 15;                  // of a network and two kernels, assumed
constexpr double kNvmeLatency = 80, kNvmePage = 1;  // a data centre SSD: 1 million reads a second, assumed
constexpr const char* kRandomRead = "random read";
constexpr const char* kRandomWrite = "random write";
constexpr const char* kSequentialRead = "sequential read";

// Design() is the code as it was when it was first simulated. This is the code with the changes that followed
// (docs/internals/scaling.md).
Design current_design() { return {.batch = 256, .frame_cache = 16, .signal_locks = 2}; }

// A program that hints each access, with the changes that would pay off then.
Design hinted() { return {.evictors = 8, .batch = 256, .stripes = 64, .frame_cache = 16, .signal_locks = 0}; }

// Eviction in the systems that MAGE compares with: one queue, small batches, one batch at a time, and synchronous
// eviction by faulting threads.
Design other_systems() { return {.batch = 32, .batches = 1, .shards = 1, .synchronous = true}; }

struct NamedDesign {
  const char* name;
  Design design;
};

std::vector<NamedDesign> designs() {
  return {{"before", Design()}, {"as it is", current_design()}, {"hinted", hinted()}};
}

// The busiest shared resources, as "signal lock 100%, mapping 27%".
std::string busiest(const Outcome& o) {
  constexpr size_t kShown = 3;
  constexpr double kMin = 0.1;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, o.uses.size()) && o.uses[i].share >= kMin; i++)
    text += fmt::format("{}{} {:.0f}%", i == 0 ? "" : ", ", o.uses[i].name, 100 * o.uses[i].share);
  return text;
}

json figures_of(const Outcome& o) {
  return {{"pages_per_s", o.pages_per_s}, {"access_us", o.access_us}, {"mean_us", o.mean_us},
          {"p50_us", o.p50_us},           {"p99_us", o.p99_us},       {"evictors_busy", o.evictor_busy},
          {"frame_waits", o.frame_waits}, {"busiest", busiest(o)}};
}

AccessSettings paging_of(const Settings& s) {
  return {.bytes = s.bytes, .local = s.share, .accesses = s.accesses, .seconds = s.seconds};
}

// The costs in a result of this benchmark.
Result<Costs> read_costs(const std::string& file) {
  json document = json::parse(read_file(file), nullptr, false);
  json rows = document.is_object() ? document.value("rows", json::array()) : json::array();
  for (const json& row : rows) {
    if (row.value("part", "") == "costs") return parse_costs(row["costs"][0]);
  }
  return Status::error(EINVAL, "--costs {}: no result of farside bench scaling", file);
}

class Prediction {
 public:
  explicit Prediction(const Setup& setup) : s_(setup.settings()), calibration_(paging_of(s_), s_.place, setup.hold()) {}

  Result<json> measure_costs() {
    auto run = calibration_.measure();
    return run.ok() ? Result<json>(json{{"measured", {*run}}}) : run;
  }
  void use_costs(const json& result) {
    calibration_.add(result["measured"][0]);
    costs_ = calibration_.costs();
  }
  Status take_costs(const std::string& file) {
    auto costs = read_costs(file);
    if (costs.ok()) costs_ = *costs;
    return costs.status();
  }

  json costs() const { return {{"costs", {to_json(costs_)}}}; }

  Scenario large(const char* workload, unsigned threads, const Design& design) const {
    WorkloadCosts work = over_link(costs_.workloads.at(workload));
    return {.work = work,
            .machine = large_machine(threads + kSpareCores),
            .design = design,
            .threads = threads,
            .faults = faults_of(work),
            .seed = s_.seed};
  }

  // Those that were measured.
  std::vector<const char*> measured(std::vector<const char*> workloads) const {
    std::erase_if(workloads, [&](const char* name) { return !costs_.workloads.contains(name); });
    return workloads;
  }

  // Fewer faults where a fault fetches many pages.
  uint64_t faults_of(const WorkloadCosts& work) const {
    return static_cast<uint64_t>(static_cast<double>(s_.faults) / std::min(6.0, work.pages_per_fault));
  }

  // Adds the outcome of a simulation.
  static void add(json key, const Scenario& scenario, json* rows) {
    rows->push_back(make_row(std::move(key), figures_of(simulate(scenario))));
  }

  Scenario here(const Measured& m) const {
    Scenario s = {.work = costs_over(costs_, m.workload, m.tier),
                  .machine = costs_.here,
                  .design = current_design(),
                  .threads = m.threads,
                  .frames = costs_.frames,
                  .seed = s_.seed};
    s.machine.cores = s.machine.cores_per_socket = m.cores;
    if (costs_.tiers.contains(m.tier)) s.machine.link = costs_.tiers.at(m.tier);
    s.machine.server_is_here = m.tier == "tcp";
    s.design.wait = Wait::kAdaptive;
    s.design.evictors = 1;
    s.faults = faults_of(s.work);
    return s;
  }

  json validation() const {
    json rows = json::array();
    for (const Measured& m : costs_.measured) {
      Outcome o = simulate(here(m));
      json figures = {{"measured_us", m.us}, {"simulated_us", o.access_us}, {"error", 100 * (o.access_us / m.us - 1)}};
      if (m.workload == kRandomRead && m.tier == "shm" && m.threads == 1 && m.cores == costs_.here.cores) {
        figures.update({{"miss_median_us", costs_.miss_median},
                        {"miss_p99_us", costs_.miss_p99},
                        {"simulated_median_us", o.p50_us},
                        {"simulated_p99_us", o.p99_us}});
      }
      rows.push_back(
          make_row({{"workload", m.workload}, {"tier", m.tier}, {"cores", m.cores}, {"threads", m.threads}}, figures));
    }
    return rows;
  }

  // Random reads with each number of evictors; the other workloads with the number of the design.
  json threads() const {
    json rows = json::array();
    for (const NamedDesign& d : designs()) {
      for (const char* workload : measured({kRandomRead, kRandomWrite, kSequentialRead})) {
        bool with_each = workload == kRandomRead;
        for (unsigned e : with_each ? std::vector<unsigned>{1, 2, 4, 8} : std::vector{d.design.evictors}) {
          Design design = d.design;
          design.evictors = e;
          for (unsigned n : s_.threads)
            add({{"design", d.name}, {"workload", workload}, {"evictors", e}, {"threads", n}},
                large(workload, n, design), &rows);
        }
      }
    }
    return rows;
  }

  // With hints, because then eviction is the limit.
  json batches() const {
    json rows = json::array();
    for (const char* workload : measured({kRandomRead, kRandomWrite})) {
      for (unsigned in_flight : {4u, 1u}) {
        for (unsigned batch : {16u, 32u, 64u, 128u, 256u, 512u}) {
          Design design = hinted();
          design.evictors = 4;
          design.batch = batch;
          design.batches = in_flight;
          add({{"workload", workload}, {"in flight", in_flight}, {"batch", batch}},
              large(workload, kManyThreads, design), &rows);
        }
      }
    }
    return rows;
  }

  json breakdown() const {
    json rows = json::array();
    if (measured({kRandomRead}).empty()) return rows;
    for (unsigned n : {8u, 24u, kManyThreads}) {
      for (const NamedDesign& d : designs()) {
        Outcome o = simulate(large(kRandomRead, n, d.design));
        for (size_t i = 0; i < kPhases; i++) {
          json key = {{"phase", phase_name(static_cast<Phase>(i))}, {"design", d.name}, {"threads", n}};
          key["at"] = fmt::format("{} {}", n, d.name);
          rows.push_back(make_row(key, {{"us", o.phases[i]}}));
        }
      }
    }
    return rows;
  }

  json all_changes() const {
    json rows = json::array();
    for (const char* workload : measured({kRandomRead, kRandomWrite, kSequentialRead})) add_changes(workload, &rows);
    return rows;
  }

  // Each change alone; then cumulatively, always adding the change with the largest gain. The same for a program that
  // hints its accesses, where no signals limit the throughput.
  void add_changes(const char* workload, json* rows) const {
    auto add_change = [&](const std::string& name, const Outcome& o) {
      rows->push_back(make_row({{"workload", workload}, {"change", name}}, figures_of(o)));
    };
    Design hints = {.signal_locks = 0};
    add_change("before", simulate_with(workload, {}, Design()));
    for (const Change& c : changes())
      add_change(fmt::format("alone: {}", c.name), simulate_with(workload, {c}, Design()));
    add_sequence(workload, Design(), "then: ", add_change);
    add_change("hinted, before", simulate_with(workload, {}, hints));
    add_sequence(workload, hints, "hinted, then: ", add_change);
  }

  Outcome simulate_with(const char* workload, const std::vector<Change>& made, Design design) const {
    for (const Change& c : made) c.apply(design);
    return simulate(large(workload, kManyThreads, design));
  }

  // One or two changes at once, and what they give.
  struct Step {
    std::vector<Change> changes;
    Outcome outcome;
    std::string name() const {
      return changes[0].name + (changes.size() > 1 ? fmt::format(", {}", changes[1].name) : "");
    }
  };

  template <typename Add>
  void add_sequence(const char* workload, Design design, const std::string& prefix, Add add_change) const {
    double best = simulate_with(workload, {}, design).pages_per_s;
    std::vector<Change> left = changes();
    for (;;) {
      Step step = best_step(workload, left, design, 1);
      // Where two resources limit alike, only both changes together gain anything.
      if (step.outcome.pages_per_s < best * kMinGain) step = best_step(workload, left, design, 2);
      if (step.outcome.pages_per_s < best * kMinGain) return;
      best = step.outcome.pages_per_s;
      for (const Change& made : step.changes) {
        made.apply(design);
        std::erase_if(left, [&](const Change& c) { return c.name == made.name; });
      }
      add_change(prefix + step.name(), step.outcome);
    }
  }

  // The change with the largest gain; with at_a_time == 2 the pair of changes with the largest gain.
  Step best_step(const char* workload, const std::vector<Change>& left, const Design& from, unsigned at_a_time) const {
    Step best;
    for (size_t i = 0; i < left.size(); i++) {
      for (size_t k = at_a_time == 1 ? i : i + 1; k < (at_a_time == 1 ? i + 1 : left.size()); k++) {
        Step step = {k == i ? std::vector{left[i]} : std::vector{left[i], left[k]}, {}};
        step.outcome = simulate_with(workload, step.changes, from);
        if (step.outcome.pages_per_s > best.outcome.pages_per_s) best = step;
      }
    }
    return best;
  }

  // How sensitive the prediction is to costs that were not measured on this machine.
  json sensitivity() const {
    json rows = json::array();
    struct Variant {
      const char* name;
      void (*apply)(MachineCosts&);
    };
    constexpr Variant kVariants[] = {
        {"as assumed", [](MachineCosts&) {}},
        {"cache lines at half the cost", [](MachineCosts& m) { m.line /= 2, m.line_far /= 2; }},
        {"cache lines at twice the cost", [](MachineCosts& m) { m.line *= 2, m.line_far *= 2; }},
        {"signal lock held half as long", [](MachineCosts& m) { m.siglock_hold /= 2; }},
        {"one socket", [](MachineCosts& m) { m.cores_per_socket = 64, m.line_far = m.line; }},
        {"shootdowns at a third of the cost", [](MachineCosts& m) { m.shootdown_per_core /= 3; }},
        {"shootdowns at twice the cost", [](MachineCosts& m) { m.shootdown_per_core *= 2, m.shootdown_serial *= 2; }},
        {"LRU lock held half as long", [](MachineCosts& m) { m.lru_hold /= 2; }},
    };
    for (const Variant& v : kVariants) {
      for (const NamedDesign& d : designs()) {
        for (const char* workload : measured({kRandomRead})) {
          Scenario s = large(workload, kManyThreads, d.design);
          v.apply(s.machine);
          add({{"costs", v.name}, {"design", d.name}}, s, &rows);
        }
      }
    }
    return rows;
  }

  // 1 to 64 threads over each tier: random reads that poll or sleep, and streams in pages of 4 KiB or frames of 2 MiB.
  json tiers() const {
    json rows = json::array();
    for (const Tier& tier : tiers_here_and_elsewhere()) {
      for (unsigned cores : {16u, kTierThreads + kSpareCores}) {
        for (unsigned n : {1u, 16u, kTierThreads}) {
          for (const char* workload : measured({kRandomRead})) {
            for (Wait wait : {Wait::kPoll, Wait::kSleep}) add_tier(tier, workload, cores, n, wait, 1, &rows);
          }
          for (const char* workload : measured({kSequentialRead})) {
            for (unsigned pages : {1u, kFramePages}) add_tier(tier, workload, cores, n, Wait::kAdaptive, pages, &rows);
          }
        }
      }
    }
    return rows;
  }

  struct Tier {
    const char *name, *measured;  // measured: whose processor costs of this machine are taken
    LinkCosts link;               // the latency and the rate of others
    unsigned servers;
  };

  std::vector<Tier> tiers_here_and_elsewhere() const {
    auto with = [this](const char* measured, double latency, double page) {
      LinkCosts link = costs_.tiers.contains(measured) ? costs_.tiers.at(measured) : LinkCosts();
      link.latency = latency;
      link.page = page;
      return link;
    };
    std::vector<Tier> all = {{"shm", "shm", {}, 1}, {"RDMA, 100 Gbit/s", "shm", with("", 3.9, kPage100G), 1}};
    if (costs_.tiers.contains("tcp")) {
      all.push_back({"tcp, 100 Gbit/s, 1 server thread", "tcp", with("tcp", kTcpLatency, kPage100G), 1});
      all.push_back({"tcp, 100 Gbit/s, 8 server threads", "tcp", with("tcp", kTcpLatency, kPage100G), 8});
    }
    if (costs_.tiers.contains("file")) all.push_back({"file, NVMe", "file", with("file", kNvmeLatency, kNvmePage), 1});
    return all;
  }

  void add_tier(const Tier& tier, const char* workload, unsigned cores, unsigned threads, Wait wait, unsigned pages,
                json* rows) const {
    Scenario s = large(workload, threads, hinted());
    s.work = costs_over(costs_, workload, tier.measured);
    s.machine.cores = cores;
    s.machine.move = costs_.here.move;
    s.machine.copy = costs_.here.copy;
    s.machine.link = tier.link;
    s.machine.servers = tier.servers;
    s.design.signal_locks = current_design().signal_locks;
    s.design.wait = wait;
    if (pages > 1) {
      s.design.frame_pages = pages;
      s.design.batch = pages;
      s.design.take_window_at_once = true;
      s.work.faults_per_access *= s.work.pages_per_fault / pages;
      s.work.pages_per_fault = pages;
      s.faults = faults_of(s.work) / 6;
    }
    constexpr const char* kWaits[] = {"polls", "sleeps", "adapts"};
    const char *how = kWaits[static_cast<int>(wait)], *unit = pages > 1 ? "2 MiB" : "4 KiB";
    json key = {{"tier", tier.name}, {"workload", workload}, {"cores", cores}, {"threads", threads}};
    key.update({{"wait", how}, {"pages", unit}});
    add(key, s, rows);
  }

  json others() const {
    json rows = json::array();
    Design background = hinted();
    background.evictors = 4;
    Design faulters = background;
    faulters.synchronous = true;
    faulters.batch = 32;
    faulters.batches = 1;
    for (const NamedDesign& d : {NamedDesign{"evictors only, pipelined", background},
                                 {"4 evictors, then by faulting threads, batches of 32", faulters},
                                 {"the same with one queue and one mapping, with signals", other_systems()}}) {
      for (unsigned n : {8u, 24u, kManyThreads}) {
        for (const char* workload : measured({kRandomRead}))
          add({{"design", d.name}, {"threads", n}}, large(workload, n, d.design), &rows);
      }
    }
    return rows;
  }

  const Settings& s_;
  Calibration calibration_;
  Costs costs_;
};

struct Part {
  const char* name;
  json (Prediction::*rows)() const;
};
constexpr Part kParts[] = {{"costs", &Prediction::costs},
                           {"validation", &Prediction::validation},
                           {"threads", &Prediction::threads},
                           {"batches", &Prediction::batches},
                           {"breakdown", &Prediction::breakdown},
                           {"changes", &Prediction::all_changes},
                           {"sensitivity", &Prediction::sensitivity},
                           {"others", &Prediction::others},
                           {"tiers", &Prediction::tiers}};

std::vector<Measurement> measurements(const Setup& setup) {
  auto prediction = std::make_shared<Prediction>(setup);
  std::vector<Measurement> all;
  const std::string& file = setup.settings().costs;
  Status taken = file.empty() ? Status() : prediction->take_costs(file);
  if (!taken.ok())
    return {{.key = json::object(), .name = "costs", .run = [taken] { return taken; }, .in_parent = true}};
  if (file.empty()) {
    all.push_back({.key = {{"part", "this machine"}},
                   .name = "this machine",
                   .run = [prediction] { return prediction->measure_costs(); },
                   .in_parent = true,
                   .use = [prediction](const json& result) { return prediction->use_costs(result), Status(); }});
  }
  for (const Part& part : kParts) {
    all.push_back({.key = {{"part", part.name}},
                   .name = part.name,
                   .run = [prediction, &part] { return Result<json>((*prediction.*part.rows)()); },
                   .once = true});
  }
  return all;
}

}  // namespace

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"signals that do not change the mask", [](Design& d) { d.signal_locks = std::min(d.signal_locks, 2u); }},
      {"64 stripes of far space", [](Design& d) { d.stripes = 64; }},
      {"8 evictors", [](Design& d) { d.evictors = 8; }},
      {"16 frames at a time for a thread", [](Design& d) { d.frame_cache = 16; }},
      {"look before taking a frame", [](Design& d) { d.look_before_take = true; }},
      {"look, and spin for as long as a batch takes",
       [](Design& d) { d.look_before_take = true, d.frame_spins = kLongSpin; }},
      {"a window's frames at once", [](Design& d) { d.take_window_at_once = true; }},
      {"a window's pages into the queue at once", [](Design& d) { d.insert_window_at_once = true; }},
      {"64 shards", [](Design& d) { d.shards = 64; }},
      {"batches of 256", [](Design& d) { d.batch = 256; }},
      {"wake a sleeper for 8 frames", [](Design& d) { d.frames_per_wake = 8; }},
  };
  return all;
}

}  // namespace farside::bench::scaling

namespace farside::bench {

Suite scaling_suite() {
  return {.name = "scaling",
          .measurements = scaling::measurements,
          .tables = scaling::tables(),
          .charts = scaling::charts()};
}

}  // namespace farside::bench
