#include "bench/scaling/scaling.h"

#include <algorithm>

#include "report/format.h"
#include "report/machine.h"

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
Design current_design() {
  Design d;
  d.signal_locks = 2;
  d.frame_cache = 16;
  d.batch = 256;
  return d;
}

// A program that hints each access, with the changes that would pay off then.
Design hinted() {
  Design d = current_design();
  d.signal_locks = 0;
  d.stripes = 64;
  d.evictors = 8;
  return d;
}

// Eviction in the systems that MAGE compares with: one queue, small batches, one batch at a time, and synchronous
// eviction by faulting threads.
Design other_systems() {
  Design d;
  d.shards = 1;
  d.batch = 32;
  d.batches = 1;
  d.synchronous = true;
  return d;
}

struct NamedDesign {
  const char* name;
  Design design;
};

json to_json(const Outcome& o) {
  json phases, uses;
  for (size_t i = 0; i < kPhases; i++) phases[phase_name(static_cast<Phase>(i))] = o.phases[i];
  for (const Use& use : o.uses) uses.push_back({{"name", use.name}, {"busy", use.share}});
  return {{"pages_per_s", o.pages_per_s}, {"access_us", o.access_us}, {"mean_us", o.mean_us},
          {"p50_us", o.p50_us},           {"p99_us", o.p99_us},       {"evictors_busy", o.evictor_busy},
          {"frame_waits", o.frame_waits}, {"phases", phases},         {"busy", uses}};
}

class Prediction {
 public:
  Prediction(const Costs& costs, const ScalingSettings& settings)
      : costs_(costs), s_(settings), progress_(8, settings.quiet) {}

  json document() {
    json d = {{"benchmark", "scaling"}, {"machine", machine_json()}, {"costs", scaling::to_json(costs_)}};
    d["settings"] = {{"faults", s_.faults}, {"seed", s_.seed}, {"threads", s_.threads}};
    d["validation"] = step("this machine", [this] { return validation(); });
    d["threads"] = step("threads", [this] { return threads(); });
    d["batches"] = step("batches", [this] { return batches(); });
    d["breakdown"] = step("where the time goes", [this] { return breakdown(); });
    d["changes"] = step("changes", [this] { return all_changes(); });
    d["sensitivity"] = step("other costs", [this] { return sensitivity(); });
    d["others"] = step("other designs", [this] { return others(); });
    d["tiers"] = step("tiers", [this] { return tiers(); });
    return d;
  }

 private:
  template <typename Work>
  json step(const char* name, Work work) {
    progress_.step(name);
    return work();
  }

  bool has(const char* workload) const { return costs_.workloads.contains(workload); }

  Scenario large(const char* workload, unsigned threads, const Design& design) const {
    Scenario s;
    s.work = over_link(costs_.workloads.at(workload));
    s.machine = large_machine(threads + kSpareCores);
    s.design = design;
    s.threads = threads;
    s.faults = faults_of(s.work);
    s.seed = s_.seed;
    return s;
  }

  // Fewer faults where a fault fetches many pages.
  uint64_t faults_of(const WorkloadCosts& work) const {
    return static_cast<uint64_t>(static_cast<double>(s_.faults) / std::min(6.0, work.pages_per_fault));
  }

  Scenario here(const Measured& m) const {
    Scenario s;
    s.work = costs_over(costs_, m.workload, m.tier);
    s.machine = costs_.here;
    s.machine.cores = s.machine.cores_per_socket = m.cores;
    if (costs_.tiers.contains(m.tier)) s.machine.link = costs_.tiers.at(m.tier);
    s.machine.server_is_here = m.tier == "tcp";
    s.design = current_design();
    s.design.wait = Wait::kAdaptive;
    s.design.evictors = 1;
    s.threads = m.threads;
    s.frames = costs_.frames;
    s.faults = faults_of(s.work);
    s.seed = s_.seed;
    return s;
  }

  json validation() const {
    json rows = json::array();
    for (const Measured& m : costs_.measured) {
      Outcome o = simulate(here(m));
      json row = {{"workload", m.workload},
                  {"tier", m.tier},
                  {"cores", m.cores},
                  {"threads", m.threads},
                  {"measured_us", m.us}};
      row["simulated_us"] = o.access_us;
      row["error"] = o.access_us / m.us - 1;
      row["simulated"] = to_json(o);
      if (m.workload == kRandomRead && m.tier == "shm" && m.threads == 1 && m.cores == costs_.here.cores &&
          costs_.miss_median > 0) {
        row["miss"] = {{"measured_median_us", costs_.miss_median}, {"measured_p99_us", costs_.miss_p99}};
      }
      rows.push_back(row);
    }
    return rows;
  }

  json threads() const {
    json rows = json::array();
    for (const NamedDesign& d :
         {NamedDesign{"before", Design()}, {"as it is", current_design()}, {"hinted", hinted()}}) {
      for (const char* workload : {kRandomRead, kRandomWrite, kSequentialRead}) {
        if (has(workload)) add_threads(d, workload, &rows);
      }
    }
    return rows;
  }

  // Random reads with each number of evictors; the other workloads with the number of the design.
  void add_threads(const NamedDesign& d, const char* workload, json* rows) const {
    std::vector<unsigned> evictors = s_.evictors;
    if (workload != kRandomRead) evictors = {d.design.evictors};
    for (unsigned e : evictors) {
      Design design = d.design;
      design.evictors = e;
      for (unsigned n : s_.threads) {
        json row = to_json(simulate(large(workload, n, design)));
        row.update({{"design", d.name}, {"workload", workload}, {"evictors", e}, {"threads", n}});
        rows->push_back(row);
      }
    }
  }

  // With hints, because then eviction is the limit.
  json batches() const {
    json rows = json::array();
    for (const char* workload : {kRandomRead, kRandomWrite}) {
      if (!has(workload)) continue;
      for (unsigned in_flight : {4u, 1u}) {
        for (unsigned batch : s_.batches) {
          Design design = hinted();
          design.evictors = 4;
          design.batch = batch;
          design.batches = in_flight;
          json row = to_json(simulate(large(workload, kManyThreads, design)));
          row.update({{"workload", workload}, {"in_flight", in_flight}, {"batch", batch}});
          rows.push_back(row);
        }
      }
    }
    return rows;
  }

  json breakdown() const {
    json rows = json::array();
    if (!has(kRandomRead)) return rows;
    for (unsigned n : {8u, 24u, kManyThreads}) {
      for (const NamedDesign& d :
           {NamedDesign{"before", Design()}, {"as it is", current_design()}, {"hinted", hinted()}}) {
        json row = to_json(simulate(large(kRandomRead, n, d.design)));
        row.update({{"design", d.name}, {"threads", n}});
        rows.push_back(row);
      }
    }
    return rows;
  }

  json all_changes() const {
    json all = json::array();
    for (const char* workload : {kRandomRead, kRandomWrite, kSequentialRead}) {
      if (has(workload)) all.push_back(changes_of(workload));
    }
    return all;
  }

  // Each change alone; then cumulatively, always adding the change with the largest gain. The same for a program that
  // hints its accesses, where no signals limit the throughput.
  json changes_of(const char* workload) const {
    json alone = json::array();
    Design hints;
    hints.signal_locks = 0;
    for (const Change& c : changes()) {
      Design design;
      c.apply(design);
      alone.push_back(named(c.name, simulate(large(workload, kManyThreads, design))));
    }
    return {{"workload", workload},
            {"base", to_json(simulate(large(workload, kManyThreads, Design())))},
            {"alone", alone},
            {"sequence", sequence(workload, Design())},
            {"hinted", to_json(simulate(large(workload, kManyThreads, hints)))},
            {"hinted_sequence", sequence(workload, hints)}};
  }

  json sequence(const char* workload, Design design) const {
    json steps = json::array();
    double best = simulate(large(workload, kManyThreads, design)).pages_per_s;
    std::vector<Change> left = changes();
    for (;;) {
      json step = best_step(workload, left, design, 1);
      // Where two resources limit alike, only both changes together gain anything.
      if (step.is_null() || step["pages_per_s"] < best * kMinGain) step = best_step(workload, left, design, 2);
      if (step.is_null() || step["pages_per_s"] < best * kMinGain) return steps;
      best = step["pages_per_s"];
      for (const std::string& name : step["names"].get<std::vector<std::string>>()) {
        auto made = std::find_if(left.begin(), left.end(), [&](const Change& c) { return c.name == name; });
        made->apply(design);
        left.erase(made);
      }
      steps.push_back(step);
    }
  }

  // The change with the largest gain; with at_a_time == 2 the pair of changes with the largest gain.
  json best_step(const char* workload, const std::vector<Change>& left, const Design& from, unsigned at_a_time) const {
    json step;
    for (size_t i = 0; i < left.size(); i++) {
      for (size_t k = at_a_time == 1 ? i : i + 1; k < (at_a_time == 1 ? i + 1 : left.size()); k++) {
        Design design = from;
        left[i].apply(design);
        if (k != i) left[k].apply(design);
        Outcome o = simulate(large(workload, kManyThreads, design));
        if (!step.is_null() && o.pages_per_s <= step["pages_per_s"]) continue;
        std::string name = left[i].name;
        step = named(k == i ? name : name + ", " + left[k].name, o);
        step["names"] = k == i ? json({left[i].name}) : json({left[i].name, left[k].name});
      }
    }
    return step;
  }

  static json named(const std::string& name, const Outcome& o) {
    json row = to_json(o);
    row["name"] = name;
    return row;
  }

  // How sensitive the prediction is to costs that were not measured on this machine.
  json sensitivity() const {
    json rows = json::array();
    if (!has(kRandomRead)) return rows;
    struct Variant {
      const char* name;
      void (*apply)(MachineCosts&);
    };
    constexpr Variant kVariants[] = {
        {"as assumed", [](MachineCosts&) {}},
        {"cache lines at half the cost", [](MachineCosts& m) { m.line_near /= 2, m.line_far /= 2; }},
        {"cache lines at twice the cost", [](MachineCosts& m) { m.line_near *= 2, m.line_far *= 2; }},
        {"signal lock held half as long", [](MachineCosts& m) { m.siglock_hold /= 2; }},
        {"one socket", [](MachineCosts& m) { m.cores_per_socket = 64, m.line_far = m.line_near; }},
        {"shootdowns at a third of the cost", [](MachineCosts& m) { m.shootdown_per_core /= 3; }},
        {"shootdowns at twice the cost", [](MachineCosts& m) { m.shootdown_per_core *= 2, m.shootdown_serial *= 2; }},
        {"LRU lock held half as long", [](MachineCosts& m) { m.lru_hold /= 2; }},
    };
    for (const Variant& v : kVariants) {
      json row = {{"name", v.name}};
      for (const NamedDesign& d :
           {NamedDesign{"before", Design()}, {"as it is", current_design()}, {"hinted", hinted()}}) {
        Scenario s = large(kRandomRead, kManyThreads, d.design);
        v.apply(s.machine);
        row[d.name] = to_json(simulate(s));
      }
      rows.push_back(row);
    }
    return rows;
  }

  // 1 to 64 threads over each tier: random reads that poll or sleep, and streams in pages of 4 KiB or frames of 2 MiB.
  json tiers() const {
    json rows = json::array();
    for (const Tier& tier : tiers_here_and_elsewhere()) {
      for (unsigned cores : {16u, kTierThreads + kSpareCores}) {
        for (unsigned n : {1u, 16u, kTierThreads}) {
          for (Wait wait : {Wait::kPoll, Wait::kSleep}) {
            if (has(kRandomRead)) add_tier(tier, kRandomRead, cores, n, wait, 1, &rows);
          }
          for (unsigned pages : {1u, kFramePages}) {
            if (has(kSequentialRead)) add_tier(tier, kSequentialRead, cores, n, Wait::kAdaptive, pages, &rows);
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
    json row = to_json(simulate(s));
    constexpr const char* kWaits[] = {"polls", "sleeps", "adapts"};
    row.update({{"tier", tier.name},
                {"workload", workload},
                {"cores", cores},
                {"threads", threads},
                {"wait", kWaits[static_cast<int>(wait)]},
                {"frame_pages", pages}});
    rows->push_back(row);
  }

  json others() const {
    json rows = json::array();
    if (!has(kRandomRead)) return rows;
    Design faulters = hinted();
    faulters.synchronous = true;
    faulters.evictors = 4;
    faulters.batch = 32;
    faulters.batches = 1;
    Design background = hinted();
    background.evictors = 4;
    for (const NamedDesign& d : {NamedDesign{"evictors only, pipelined", background},
                                 {"4 evictors, then by faulting threads, batches of 32", faulters},
                                 {"the same with one queue and one mapping, with signals", other_systems()}}) {
      for (unsigned n : {8u, 24u, kManyThreads}) {
        json row = to_json(simulate(large(kRandomRead, n, d.design)));
        row.update({{"design", d.name}, {"threads", n}});
        rows.push_back(row);
      }
    }
    return rows;
  }

  const Costs& costs_;
  const ScalingSettings& s_;
  Progress progress_;
};

}  // namespace

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {"signals that do not change the mask", [](Design& d) { d.signal_locks = std::min(d.signal_locks, 2u); }},
      {"64 stripes of far space", [](Design& d) { d.stripes = 64; }},
      {"8 evictors", [](Design& d) { d.evictors = 8; }},
      {"16 frames at a time for a thread", [](Design& d) { d.frame_cache = 16; }},
      {"look before taking a frame", [](Design& d) { d.look_before_take = true; }},
      {"look, and spin for as long as a batch takes",
       [](Design& d) {
         d.look_before_take = true;
         d.frame_spins = kLongSpin;
       }},
      {"a window's frames at once", [](Design& d) { d.take_window_at_once = true; }},
      {"a window's pages into the queue at once", [](Design& d) { d.insert_window_at_once = true; }},
      {"64 shards", [](Design& d) { d.shards = 64; }},
      {"batches of 256", [](Design& d) { d.batch = 256; }},
      {"wake a sleeper for 8 frames", [](Design& d) { d.frames_per_wake = 8; }},
  };
  return all;
}

json predict(const Costs& costs, const ScalingSettings& settings) { return Prediction(costs, settings).document(); }

}  // namespace farside::bench::scaling
