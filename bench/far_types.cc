// `farside bench apps`: applications of bench/apps that are templates over their types, over std types and over far
// types, with the same near memory, fibers and results.
#include <fmt/format.h>

#include "bench/application_runs.h"
#include "bench/suites.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char *kPaged = "paged", *kObjects = "objects", *kHybrid = "hybrid";

// With the throughput of objects or hybrid that was to be reached over tcp at 25 % near, as multiple of paged.
struct Goal {
  Application app;
  double over_paged;
};
const Goal kGoals[] = {{{.name = "web_frontend", .hinted_policy = "priority"}, 3},
                       {{.name = "cache", .hinted_policy = "2q"}, 2},
                       {{.name = "graph", .hinted_policy = "2q"}, 1.5}};

std::vector<Application> applications() {
  std::vector<Application> all;
  for (const Goal& goal : kGoals) all.push_back(goal.app);
  return all;
}

Configuration far_types(const char* name, const char* tune) {
  return {.name = name, .options = {"--tune", tune}, .app_options = {"--types", "far"}};
}
const Configuration kConfigurations[] = {{.name = kPaged},
                                         {.name = "hinted", .hints = true},
                                         far_types(kObjects, "paths=object"),
                                         far_types(kHybrid, "paths=hybrid"),
                                         {.name = kSwap, .swap = true}};

std::vector<Measurement> measurements(const Setup& setup) {
  static const std::vector<Application> kApplications = applications();
  return application_measurements(setup,
                                  {kApplications, kConfigurations, setup.settings().transports, NearOf::kNative});
}

std::vector<Table> tables() {
  const json far = {{"configuration", {kPaged, "hinted", kObjects, kHybrid}}};
  return {
      table("std types, native", {"app"},
            {col("thousand operations/s", "operations_per_s", 1, 1000), col("peak MiB", "peak_bytes", 0, 1 << 20)})
          .of({{"configuration", kNative}}),
      table("% of native", {"app", "transport", "near"}, {col("", "of_native")}).by("configuration", kPaged).of(far),
      table("zram swap, % of native", {"app", "near"}, {col("", "of_native")}).of({{"configuration", kSwap}}),
      table("misses an operation: pages and objects that were waited for", {"app", "transport", "near"},
            {col("", "misses", 2, 1, "operations")})
          .by("configuration")
          .of(far),
      table("bytes fetched an operation", {"app", "transport", "near"}, {col("", "fetched_bytes", 0, 1, "operations")})
          .by("configuration")
          .of(far),
      table("p99 us", {"app", "transport", "near"}, {col("", "p99_us")}).by("configuration").of(far)};
}

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const auto& [app, over_paged] : kGoals) {
    all.push_back(goal(fmt::format("{}, {{configuration}}, tcp, 25 % near: throughput over paged", app.name),
                       "operations_per_s", at_least(over_paged),
                       {{"app", app.name}, {"configuration", kHybrid}, {"near", 25}, {"transport", "tcp"}})
                      .over("operations_per_s", {{"configuration", kPaged}}));
  }
  all.push_back(goal("{app}, {configuration}, {transport}, all near: throughput over paged", "operations_per_s",
                     at_least(0.9), {{"configuration", {kObjects, kHybrid}}, {"near", 100}})
                    .over("operations_per_s", {{"configuration", kPaged}}));
  return all;
}

}  // namespace

Suite far_types_suite() {
  return {.name = "far-types",
          .measurements = measurements,
          .tables = tables(),
          .targets = targets(),
          .charts = {chart("", "% of its memory near", "% of native", "near", {"of_native"}, {"configuration"})
                         .by({"app", "transport"})}};
}

std::vector<std::string> far_type_names() {
  std::vector<std::string> names;
  for (const Goal& goal : kGoals) names.emplace_back(goal.app.name);
  return names;
}

}  // namespace farside::bench
