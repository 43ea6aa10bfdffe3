#include "bench/replicas.h"

#include <fmt/format.h>

#include "measure/configurations.h"
#include "measure/process.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

// The cells of each repetition, with one server and with two replicas.
struct Pair {
  std::string transport;
  std::vector<json> one, two;
};

class ReplicasRun {
 public:
  ReplicasRun(const PagingSettings& settings, const SignalHold& hold)
      : settings_(settings), hold_(hold), progress_(4 * settings.repetitions, settings.quiet) {}

  Status prepare() {
    uint64_t memory = 2 * settings_.bytes + 32 * remote::kSlabBytes;
    auto first = ServerProcess::start(hold_, memory);
    if (!first.ok()) return first.status();
    auto second = ServerProcess::start(hold_, memory, (*first)->token());
    if (!second.ok()) return second.status();
    first_ = std::move(*first);
    second_ = std::move(*second);
    return {};
  }

  // Alternates between one server and two, so that drift of the machine affects both alike.
  Status repeat() {
    for (Pair& pair : pairs_) {
      bool shm = pair.transport == "shm";
      std::string one = shm ? first_->shm() : first_->tcp();
      Status measured = measure(one, 1, pair.transport + ", one server", &pair.one);
      if (!measured.ok()) return measured;
      std::string both = one + "," + (shm ? second_->shm() : second_->tcp());
      measured = measure(both, 2, pair.transport + ", two replicas", &pair.two);
      if (!measured.ok()) return measured;
    }
    return {};
  }

  json document() const {
    json made = {{"benchmark", "replicas"}, {"machine", machine_json()}, {"cells", json::array()}};
    made["settings"] = {{"bytes", settings_.bytes},
                        {"local_share", settings_.local},
                        {"accesses", settings_.accesses},
                        {"repetitions", settings_.repetitions},
                        {"evictors", settings_.evictors}};
    for (const Pair& pair : pairs_) add_cells(pair, &made["cells"]);
    return made;
  }

 private:
  Status measure(const std::string& address, unsigned replicas, const std::string& name, std::vector<json>* runs) {
    progress_.step(name);
    FarMemoryConfig far = {.address = address, .token = first_->token(), .bytes = settings_.bytes};
    far.local = static_cast<uint64_t>(settings_.local * static_cast<double>(settings_.bytes));
    far.evictors = settings_.evictors;
    far.replicas = replicas;
    Result<json> made = run_in_child(hold_, [&] { return measure_far(settings_, far); });
    if (!made.ok()) return Status::error(made.status().code(), "{}: {}", name, made.status().text());
    runs->push_back((*made)["cells"]);
    return {};
  }

  static void add_cells(const Pair& pair, json* cells) {
    for (size_t c = 0; c < pair.one[0].size(); c++) {
      std::vector<double> one, two, ratios;
      for (size_t run = 0; run < pair.one.size(); run++) {
        one.push_back(pair.one[run][c]["us"]);
        two.push_back(pair.two[run][c]["us"]);
        ratios.push_back(two.back() / one.back());
      }
      cells->push_back({{"transport", pair.transport},
                        {"workload", pair.one[0][c]["workload"]},
                        {"threads", pair.one[0][c]["threads"]},
                        {"one_us", summary(one)},
                        {"two_us", summary(two)},
                        {"ratio", summary(ratios)}});
    }
  }

  const PagingSettings& settings_;
  const SignalHold& hold_;
  Progress progress_;
  std::unique_ptr<ServerProcess> first_, second_;
  Pair pairs_[2] = {{"shm", {}, {}}, {"tcp", {}, {}}};
};

}  // namespace

Result<json> measure_replicas(const PagingSettings& settings) {
  SignalHold hold;
  ReplicasRun run(settings, hold);
  Status status = run.prepare();
  for (unsigned i = 0; i < settings.repetitions && status.ok(); i++) status = run.repeat();
  if (!status.ok()) return status;
  return run.document();
}

std::string replicas_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"us per access, medians", "threads", "one server", "two replicas", "ratio", "from", "to"}};
  for (const json& cell : document["cells"]) {
    const json& ratio = cell["ratio"];
    rows.push_back({fmt::format("{}, {}", cell["transport"].get<std::string>(), cell["workload"].get<std::string>()),
                    fmt::format("{}", cell["threads"].get<unsigned>()),
                    fmt::format("{:.2f}", cell["one_us"]["median"].get<double>()),
                    fmt::format("{:.2f}", cell["two_us"]["median"].get<double>()),
                    fmt::format("{:.2f}", ratio["median"].get<double>()),
                    fmt::format("{:.2f}", ratio["min"].get<double>()),
                    fmt::format("{:.2f}", ratio["max"].get<double>())});
  }
  return machine_text(document["machine"]) + "\n\n" + format_table(rows);
}

}  // namespace farside::bench
