// `farside bench regret`: what the default settings cost beside the best fixed ones, for each workload and amount of
// near memory: in pages, of which runs differ little, and in time.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/bits.h"
#include "bench/regret_workloads.h"
#include "bench/runner/own_runs.h"
#include "bench/runner/report.h"
#include "bench/suites.h"
#include "launch/run_captured.h"
#include "report/files.h"
#include "report/format.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr double kMinSeconds = 5, kMaxSecondsNear = 120;  // limits of a run, and of one with all memory near
constexpr double kGoal = 1.2;
constexpr long kNamed = 12;              // of the worst
constexpr uint64_t kMinNear = 8 * kMiB;  // what `farside run` demands
constexpr double kMinCost = 0.01;        // of a workload's pages: lower costs do not differ
constexpr double kCutOff = std::numeric_limits<double>::infinity();

struct Setting {
  const char *name, *options;
};
// The first is compared with all of them.
constexpr Setting kSettings[] = {
    {"defaults", ""},
    {"lru", "--tune policy=lru"},
    {"no prefetch", "--tune prefetch=off"},
    {"no prefetch, lru", "--tune prefetch=off,policy=lru"},
    {"no huge", "--huge never"},
    {"no huge, lru", "--huge never --tune policy=lru"},
    {"no huge, no prefetch", "--huge never --tune prefetch=off"},
    {"no huge, no prefetch, lru", "--huge never --tune prefetch=off,policy=lru"},
};
constexpr const char* kAllNear = "--local 100%";

// The runs of one workload, in a folder with its input.
class RegretRuns {
 public:
  static Result<json> measure(const Setup& setup, const RegretWorkload& workload) {
    RegretRuns runs(setup, workload);
    Status prepared = runs.prepare();
    return prepared.ok() ? runs.all() : prepared;
  }

 private:
  RegretRuns(const Setup& setup, const RegretWorkload& workload) : setup_(setup), workload_(workload) {}

  Status prepare() {
    Result<OwnRuns> prepared = OwnRuns::prepare(setup_);
    if (!prepared.ok()) return prepared.status();
    own_ = std::move(*prepared);
    auto there = shell(fmt::format("command -v '{}'", workload_.needs), kMaxSecondsNear);
    if (!there.ok()) return there.status();
    if (!there->succeeded()) return Status::error(ENOENT, "{} is not installed", workload_.needs);
    auto made = shell(workload_.prepare, kMaxSecondsNear);
    if (!made.ok() || made->succeeded()) return made.status();
    return Status::error(ECHILD, "cannot make the input: {}", made->outcome());
  }

  // A row for each run, and one for each amount of near memory that compares them.
  Result<json> all() {
    Result<json> near = run_far(kAllNear, kMaxSecondsNear);
    if (!near.ok()) return near;
    if (!near->contains("pages")) return json{make_row({{"setting", "all near"}}, *near)};
    output_ = (*near)["output"], pages_ = (*near)["peak_pages"];
    limit_ = std::max(kMinSeconds, setup_.settings().cut_off * (*near)["s"].get<double>());
    json rows = {make_row({{"setting", "all near"}}, *near)};
    for (unsigned share : setup_.settings().shares) {
      if (Status added = add(share, &rows); !added.ok()) return added;
    }
    return rows;
  }

  Status add(unsigned share, json* rows) {
    uint64_t near = std::max(kMinNear, pages_ * kPageSize * share / 100);
    std::vector<json> runs;
    for (const Setting& setting : kSettings) {
      Result<json> run = run_far(fmt::format("--local {} {}", near, setting.options), limit_);
      if (!run.ok()) return run.status();
      rows->push_back(make_row({{"near", share}, {"setting", setting.name}}, *run));
      runs.push_back(std::move(*run));
    }
    rows->push_back(make_row({{"near", share}}, compared(runs)));
    return {};
  }

  // {"failed": reason}, or {"cut_off": seconds}, where the program did not do what it does with all memory near.
  Result<json> run_far(const std::string& options, double limit) const {
    std::string file = own_.directory->file("stats.json");
    std::filesystem::remove(file);
    std::string far = fmt::format("'{}' run --quiet {} --far '{}' --stats 'json:{}' --", own_.farside, options,
                                  setup_.server().shm(), file);
    auto run = shell(filled_in(workload_.command, "{far}", far), limit);
    if (!run.ok()) return run.status();
    if (run->cut_off) return json{{"cut_off", limit}};
    json statistics = json::parse(read_file(file), nullptr, false);
    if (!run->succeeded() || !statistics.is_object()) return json{{"failed", run->outcome()}};
    const json& totals = statistics["totals"];
    if (!output_.empty() && run->output != output_) return json{{"failed", "other output than with all memory near"}};
    auto pages = [&](const char* bytes) { return totals[bytes].get<uint64_t>() / kPageSize; };
    return json{{"output", run->output},
                {"s", run->seconds},
                {"peak_pages", pages("heap_peak_bytes")},
                {"fetched", pages("bytes_fetched")},
                {"written", pages("bytes_written")},
                {"pages", pages("bytes_fetched") + pages("bytes_written")},
                {"faults", totals["faults"]}};
  }

  Result<CapturedRun> shell(const std::string& text, double limit) const {
    std::string items = std::to_string(setup_.settings().bytes / workload_.bytes_per_item);
    std::string line = filled_in(filled_in(text, "{n}", items), "{apps}", setup_.settings().apps_dir);
    return run_captured({"/bin/sh", "-c", fmt::format("cd '{}' || exit 1; {}", own_.directory->file(""), line)},
                        setup_.hold(), {.seconds = limit});
  }

  static std::string filled_in(std::string text, const std::string& place, const std::string& value) {
    for (size_t at = text.find(place); at != text.npos; at = text.find(place, at + value.size()))
      text.replace(at, place.size(), value);
    return text;
  }

  static double cost(const json& run, const char* figure) {
    return run.contains(figure) ? run[figure].get<double>() : kCutOff;
  }

  json compared(const std::vector<json>& runs) const {
    json figures;
    add_compared(runs, "pages", std::max(1.0, kMinCost * static_cast<double>(pages_)), &figures);
    add_compared(runs, "s", 0, &figures);
    return figures;
  }

  // Of one figure: what the defaults cost, the best setting, its cost, and the quotient. Words where a run was cut off.
  void add_compared(const std::vector<json>& runs, const std::string& figure, double least, json* figures) const {
    size_t best = 0;
    for (size_t i = 1; i < runs.size(); i++) {
      if (cost(runs[i], figure.c_str()) < cost(runs[best], figure.c_str())) best = i;
    }
    double ours = cost(runs[0], figure.c_str()), theirs = cost(runs[best], figure.c_str());
    json row = {{"defaults", ours},
                {"best", theirs},
                {"regret", std::max(ours, least) / std::max(theirs, least)},
                {"setting", kSettings[best].name}};
    if (ours == kCutOff) row["defaults"] = fmt::format("over {:.0f} s", limit_);
    if (ours == kCutOff) row["regret"] = fmt::format("over {:.1f}", limit_ / cost(runs[best], "s"));
    if (theirs == kCutOff) row["setting"] = row["regret"] = row["best"] = "none ended";
    for (const auto& [name, value] : row.items()) (*figures)[figure + "_" + name] = value;
  }

  const Setup& setup_;
  const RegretWorkload& workload_;
  OwnRuns own_;
  std::string output_;
  uint64_t pages_ = 0;
  double limit_ = 0;
};

// A program that fails, or computes something else.
Status check(const json& rows) {
  for (const json& row : rows) {
    if (row["figures"].contains("failed"))
      return Status::error(EIO, "{}: {}", row["key"].dump(), row["figures"]["failed"].get<std::string>());
  }
  return {};
}

std::vector<Measurement> measurements(const Setup& setup) {
  std::vector<Measurement> all;
  for (const RegretWorkload& workload : regret_workloads()) {
    if (!Settings::wants(setup.settings().apps, workload.name)) continue;
    all.push_back({.key = {{"workload", workload.name}},
                   .name = workload.name,
                   .run = [&setup, &workload] { return RegretRuns::measure(setup, workload); },
                   .may_fail = true,
                   .in_parent = true,
                   .use = check});
  }
  return all;
}

// The median of all regrets by one figure, how many are above the goal, and the worst.
std::string summary_text(const json& rows, const char* name, const std::string& figure) {
  std::vector<std::pair<double, std::string>> regrets;
  for (const json& row : rows) {
    json::const_iterator found = row.find(figure);
    if (found == row.end() || *found == "none ended") continue;
    regrets.emplace_back(figure_of(row, figure).value_or(kCutOff),
                         fmt::format("{}, {} % near", row["workload"].get<std::string>(), row["near"].get<unsigned>()));
  }
  if (regrets.empty()) return "";
  std::ranges::sort(regrets, std::greater());
  auto above = std::ranges::count_if(regrets, [](const auto& regret) { return regret.first > kGoal; });
  auto text = [](double regret) { return regret == kCutOff ? "not ended" : fmt::format("{:.2f}", regret); };
  std::string line = fmt::format("{}: median {}, {} of {} above {}\n", name, text(regrets[regrets.size() / 2].first),
                                 above, regrets.size(), kGoal);
  for (long i = 0; i < std::clamp(above, 1L, kNamed); i++)
    line += fmt::format("  {}: {}\n", text(regrets[i].first), regrets[i].second);
  return line;
}

std::string summaries(const json& rows) {
  return summary_text(rows, "regret by pages", "pages_regret") + summary_text(rows, "regret by time", "s_regret");
}

json setting_names() {
  json names = json::array();
  for (const Setting& setting : kSettings) names.push_back(setting.name);
  return names;
}

}  // namespace

Suite regret_suite() {
  return {
      .name = "regret",
      .measurements = measurements,
      .tables = {table("pages fetched and written", {"workload", "near"},
                       {col("defaults", "pages_defaults", 0), col("best", "pages_best", 0),
                        col("with", "pages_setting"), col("regret", "pages_regret", 2), col("s", "s_defaults", 2),
                        col("best s", "s_best", 2), col("with", "s_setting"), col("regret", "s_regret", 2)})},
      .targets = {goal("pages of the defaults over those of the best setting, at worst", "pages_regret", at_most(kGoal),
                       {})
                      .at_worst("workload")},
      .charts = {chart("", "% of its memory near", "thousand pages fetched and written", "near", {"pages"}, {"setting"})
                     .by({"workload"})
                     .of({{"setting", setting_names()}})
                     .in(1000)},
      .more_text = summaries};
}

}  // namespace farside::bench
