#include "cli/bench/objects/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/figures.h"

namespace farside::cli::bench {
namespace {

using nlohmann::json;
using objects_bench::FarRun;
using objects_bench::Way;

constexpr unsigned kFibers[] = {1, 4, 16, 64};
struct NamedWay {
  const char* name;
  Way way;
};
constexpr NamedWay kFiberWays[] = {{"objects", Way::kObject}, {"pages", Way::kPages}};
constexpr NamedWay kWays[] = {{"plain array, paged", Way::kPages},
                              {"objects, as pages only", Way::kPage},
                              {"objects, one by one only", Way::kObject},
                              {"objects, hybrid", Way::kHybrid}};

// A measurement of some figures, made `repetitions` times.
class Runs {
 public:
  void add(const json& made) { made_.push_back(made); }
  json summed() const {
    json sum = json::object();
    for (const auto& [key, value] : made_.front().items()) {
      if (!value.is_number()) {
        sum[key] = made_.back()[key];
        continue;
      }
      std::vector<double> values;
      for (const json& m : made_) values.push_back(m[key]);
      sum[key] = summary(values);
    }
    return sum;
  }

 private:
  std::vector<json> made_;
};

struct Measurement {
  std::string name;
  json key;
  std::function<Result<json>()> run;
};

std::vector<Measurement> measurements(const ObjectsSettings& s, const ServerProcess& server) {
  std::vector<Measurement> all;
  all.push_back({"near", {{"part", "near"}}, [&] { return Result<json>(objects_bench::measure_near(server)); }});
  for (bool tcp : {false, true}) {
    FarRun run{s, server, tcp};
    const char* over = tcp ? "tcp" : "shm";
    all.push_back({fmt::format("misses, {}", over), {{"part", "misses"}, {"over", over}}, [run] {
                     return objects_bench::measure_misses(run);
                   }});
    for (const NamedWay& w : kFiberWays) {
      for (unsigned n : kFibers) {
        all.push_back({fmt::format("{} fibers, {}, {}", n, w.name, over),
                       {{"part", "fibers"}, {"over", over}, {"way", w.name}, {"fibers", n}},
                       [run, w, n] { return objects_bench::measure_fibers_on(run, w.way, n); }});
      }
    }
    for (const std::string& workload : objects_bench::workload_names()) {
      for (const NamedWay& w : kWays) {
        all.push_back({fmt::format("{}, {}, {}", workload, w.name, over),
                       {{"part", "paths"}, {"over", over}, {"workload", workload}, {"way", w.name}},
                       [run, w, workload] { return objects_bench::measure_workload(run, w.way, workload); }});
      }
    }
  }
  return all;
}

// The row that has all of these.
const json* find(const json& document, const json& wanted) {
  for (const json& row : document["rows"]) {
    bool same = std::all_of(wanted.items().begin(), wanted.items().end(),
                            [&](const auto& item) { return row.value(item.key(), json()) == item.value(); });
    if (same) return &row;
  }
  return nullptr;
}

double figure(const json& document, const json& wanted, const char* name) {
  const json* row = find(document, wanted);
  return row ? (*row)[name]["median"].get<double>() : 0;
}

std::vector<Goal> near_goals(const json& near) {
  std::vector<Goal> goals;
  for (const json& c : near["cases"]) {
    std::string name = c["name"];
    if (name == "std::unique_ptr") continue;
    double limit = name == "scope and deref" ? 4.8 : 1.7;
    goals.push_back({name + ": ns, 64 hot objects", c["ns"]["median"], limit, false, " ns"});
    if (name != "scope and deref" && c["instructions"].is_number())
      goals.push_back({name + ": instructions", c["instructions"], 10, false, ""});
  }
  goals.push_back({"chasing through 128 MB: deref against raw", near["chase"]["ratio"]["median"], 1.10, false, "x"});
  return goals;
}

std::vector<Goal> goals_of(const json& document) {
  std::vector<Goal> goals = near_goals((*find(document, {{"part", "near"}})));
  for (const char* over : {"shm", "tcp"}) {
    json misses = {{"part", "misses"}, {"over", over}};
    goals.push_back({fmt::format("miss of 64 B over {}, beyond the transport", over),
                     figure(document, misses, "line_us") - figure(document, misses, "line_transport_us"), 1.2, false,
                     " us"});
  }
  auto rate = [&](const char* way) {
    return figure(document, {{"part", "fibers"}, {"over", "tcp"}, {"way", way}, {"fibers", 64}}, "reads_per_s");
  };
  goals.push_back(
      {"random 64 B reads over tcp, 64 fibers: objects against pages", rate("objects") / rate("pages"), 7, true, "x"});
  for (const char* over : {"shm", "tcp"}) {
    for (const std::string& workload : objects_bench::workload_names()) {
      auto pace = [&](const char* way) {
        return figure(document, {{"part", "paths"}, {"over", over}, {"workload", workload}, {"way", way}},
                      "accesses_per_s");
      };
      double best = std::max(pace("objects, as pages only"), pace("objects, one by one only"));
      goals.push_back({fmt::format("{} over {}: hybrid against the better path", workload, over),
                       pace("objects, hybrid") / best, workload == "mixed" ? 1.0 : 0.95, true, "x"});
    }
  }
  return goals;
}

std::string near_text(const json& near) {
  std::vector<std::vector<std::string>> rows = {{"near objects", "ns", "instructions"}};
  for (const json& c : near["cases"]) {
    rows.push_back({c["name"], fmt::format("{:.2f}", c["ns"]["median"].get<double>()),
                    c["instructions"].is_number() ? fmt::format("{:.1f}", c["instructions"].get<double>()) : "-"});
  }
  const json& chase = near["chase"];
  rows.push_back({"chase through 128 MB, raw", fmt::format("{:.1f}", chase["raw_ns"]["median"].get<double>()), ""});
  rows.push_back({"chase through 128 MB, deref", fmt::format("{:.1f}", chase["far_ns"]["median"].get<double>()), ""});
  return format_table(rows) + "Instructions beyond the same loop without a use.\n\n";
}

std::string misses_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"a miss, us", "64 B", "transport alone", "4 KiB", "transport alone"}};
  for (const char* over : {"shm", "tcp"}) {
    std::vector<std::string> row = {over};
    for (const char* name : {"line_us", "line_transport_us", "page_us", "page_transport_us"})
      row.push_back(fmt::format("{:.2f}", figure(document, {{"part", "misses"}, {"over", over}}, name)));
    rows.push_back(row);
  }
  return format_table(rows) + "\n";
}

std::string fibers_table(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"random reads of 64 B, thousands a second, by fibers"}};
  for (unsigned n : kFibers) rows[0].push_back(fmt::format("{}", n));
  rows[0].push_back("bytes fetched for each useful one");
  for (const char* over : {"shm", "tcp"}) {
    for (const NamedWay& w : kFiberWays) {
      std::vector<std::string> row = {fmt::format("{}, {}", w.name, over)};
      json key = {{"part", "fibers"}, {"over", over}, {"way", w.name}};
      for (unsigned n : kFibers) {
        key["fibers"] = n;
        row.push_back(fmt::format("{:.1f}", figure(document, key, "reads_per_s") / 1000));
      }
      row.push_back(fmt::format("{:.1f}", figure(document, key, "bytes_per_useful")));
      rows.push_back(row);
    }
  }
  return format_table(rows) + "\n";
}

std::string paths_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {{"thousand accesses a second (bytes fetched for each useful one)"}};
  for (const std::string& workload : objects_bench::workload_names()) rows[0].push_back(workload);
  for (const char* over : {"shm", "tcp"}) {
    for (const NamedWay& w : kWays) {
      std::vector<std::string> row = {fmt::format("{}, {}", w.name, over)};
      for (const std::string& workload : objects_bench::workload_names()) {
        json key = {{"part", "paths"}, {"over", over}, {"workload", workload}, {"way", w.name}};
        row.push_back(fmt::format("{:.0f} ({:.1f})", figure(document, key, "accesses_per_s") / 1000,
                                  figure(document, key, "bytes_per_useful")));
      }
      rows.push_back(row);
    }
  }
  return format_table(rows) + "\n";
}

}  // namespace

Result<json> measure_objects(const ObjectsSettings& s) {
  SignalHold hold;
  auto server = ServerProcess::start(hold, 8 * s.bytes + 2 * kGiB);
  if (!server.ok()) return server.status();
  std::vector<Measurement> all = measurements(s, **server);
  std::vector<Runs> runs(all.size());
  Progress progress(all.size() * s.repetitions, s.quiet);
  for (unsigned repetition = 0; repetition < s.repetitions; repetition++) {
    for (size_t i = 0; i < all.size(); i++) {
      progress.step(all[i].name);
      auto made = run_in_child(hold, all[i].run);
      if (!made.ok()) return made.status();
      runs[i].add(*made);
    }
  }
  json document = {
      {"machine", machine_json()},
      {"settings", {{"bytes", s.bytes}, {"local", s.local}, {"accesses", s.accesses}, {"repetitions", s.repetitions}}}};
  for (size_t i = 0; i < all.size(); i++) {
    json row = runs[i].summed();
    row.update(all[i].key);
    document["rows"].push_back(row);
  }
  for (const Goal& goal : goals_of(document)) document["goals"].push_back(goal.to_json());
  return document;
}

std::string objects_text(const json& document) {
  std::string text = machine_text(document["machine"]) + "\n\n" + near_text(*find(document, {{"part", "near"}})) +
                     misses_text(document) + fibers_table(document) + paths_text(document);
  for (const Goal& goal : goals_of(document)) text += goal.text() + "\n";
  return text;
}

// Atlas figure 7: how segments turn to paging while objects that are used together come to lie together.
std::vector<LineChart> objects_charts(const json& document) {
  LineChart chart{"Segments that come back as pages, hybrid, over tcp", "time", "share", 20, 1.05, {}};
  for (const std::string& workload : objects_bench::workload_names()) {
    const json* row =
        find(document, {{"part", "paths"}, {"over", "tcp"}, {"workload", workload}, {"way", "objects, hybrid"}});
    if (!row) continue;
    LineChart::Series series{workload, {}};
    double at = 0;
    for (const json& share : (*row)["page_share"]) series.points.emplace_back(++at, share.get<double>());
    chart.series.push_back(series);
  }
  return {chart};
}

}  // namespace farside::cli::bench
