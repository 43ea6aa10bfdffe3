#include "bench/redis.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/bits.h"
#include "base/log.h"
#include "base/size.h"
#include "bench/redis_server.h"
#include "launch/installation.h"
#include "launch/preload.h"
#include "measure/process.h"
#include "measure/swap.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr unsigned kValueBytes = 512;
constexpr unsigned kInFlight = 16;
constexpr const char* kTests[] = {"set", "get"};
constexpr const char* kFigures[] = {"ops_per_s", "p50_us", "p99_us", "written_per_op"};
constexpr uint64_t kAllowance = 256 * kMiB;  // far memory beyond the data, for fragmentation of the allocator

class RedisRun {
 public:
  RedisRun(const RedisSettings& settings, const SignalHold& hold)
      : settings_(settings), hold_(hold), progress_(settings.repetitions * 6, settings.quiet) {}

  Status prepare() {
    for (const char* program : {"redis-server", "redis-benchmark"}) {
      Result<std::string> path = find_in_path(program);
      if (!path.ok()) return path.status();
    }
    Result<Installation> installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    return {};
  }

  // The native run is first: the memory limit for kernel swap is a share of its size.
  Status repeat() {
    Status done = measure("native", {});
    if (done.ok() && !server_) done = prepare_configurations();
    std::string share = fmt::format("{:g}%", 100 * settings_.local);
    if (done.ok()) done = measure("shm", far_launcher(share, server_->shm()));
    if (done.ok()) done = measure("tcp", far_launcher(share, server_->tcp()));
    if (done.ok()) done = measure("tcp, lines", far_launcher(share, server_->tcp(), "line"));
    if (done.ok() && limit_) done = measure_swap();
    if (done.ok()) done = measure("shm, all near", far_launcher("100%", server_->shm()));
    return done;
  }

  json document() const {
    json made = {{"benchmark", "redis"}, {"machine", machine_json()}, {"skipped", skipped_}};
    made["settings"] = {{"keys", settings_.keys},         {"requests", settings_.requests},
                        {"value_bytes", kValueBytes},     {"in_flight", kInFlight},
                        {"local_share", settings_.local}, {"repetitions", settings_.repetitions}};
    made["native_resident_bytes"] = native_bytes_;
    for (const auto& [configuration, tests] : collected_) {
      for (const auto& [test, runs] : tests) {
        for (const char* figure : kFigures) {
          std::vector<double> values;
          for (const json& run : runs) values.push_back(run[figure]);
          made["configurations"][configuration][test][figure] = summary(values);
        }
      }
    }
    return made;
  }

 private:
  using Words = std::vector<std::string>;

  Words far_launcher(const std::string& local, const std::string& address, const char* writeback = "page") const {
    return {farside_, "run", "--quiet", "--local", local, "--far", address, "--writeback", writeback, "--"};
  }

  Status prepare_configurations() {
    auto server = ServerProcess::start(hold_, 2 * native_bytes_ + kAllowance);
    if (!server.ok()) return server.status();
    server_ = std::move(*server);
    Status handed_over = hand_over_token(server_->token());
    if (!handed_over.ok()) return handed_over;
    if (!settings_.zram) {
      skipped_["zram swap"] = "left out by --no-zram";
      return {};
    }
    auto swap = ZramSwap::create(2 * native_bytes_);
    auto near = static_cast<uint64_t>(settings_.local * static_cast<double>(native_bytes_));
    auto limit = swap.ok() ? MemoryLimit::create(near) : swap.status();
    if (!limit.ok()) {
      skipped_["zram swap"] = limit.status().text();
      return {};
    }
    swap_ = std::move(*swap);
    limit_ = std::move(*limit);
    return {};
  }

  // The kernel may kill the server in its memory limit. The other repetitions still count.
  Status measure_swap() {
    Status done = measure("zram swap", limit_->launcher());
    if (done.ok() || done.code() == EINTR) return done;
    log(LogLevel::kWarning, "a repetition is left out: {}", done.text());
    return {};
  }

  Status measure(const std::string& configuration, const Words& launcher) {
    progress_.step(configuration);
    auto redis = RedisServer::start(hold_, launcher);
    if (!redis.ok()) return Status::error(redis.status().code(), "{}: {}", configuration, redis.status().text());
    Status filled = (*redis)->fill(settings_.keys, kValueBytes);
    if (!filled.ok()) return Status::error(filled.code(), "{}: {}", configuration, filled.text());
    if (configuration == "native") native_bytes_ = (*redis)->resident_bytes();
    for (const char* test : kTests) {
      uint64_t before = (*redis)->bytes_written();
      Result<std::string> csv = (*redis)->benchmark(test, settings_.requests, settings_.keys, kValueBytes, kInFlight);
      Result<json> figures = csv.ok() ? parse_redis_csv(*csv) : csv.status();
      if (!figures.ok())
        return Status::error(figures.status().code(), "{}: {}", configuration, figures.status().text());
      auto written = static_cast<double>((*redis)->bytes_written() - before);
      (*figures)["written_per_op"] = written / static_cast<double>(settings_.requests);
      collected_[configuration][test].push_back(*figures);
    }
    return {};
  }

  RedisSettings settings_;
  std::string farside_;  // path of the program
  const SignalHold& hold_;
  Progress progress_;
  uint64_t native_bytes_ = 0;
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<ZramSwap> swap_;
  std::unique_ptr<MemoryLimit> limit_;
  std::map<std::string, std::string> skipped_;
  std::map<std::string, std::map<std::string, std::vector<json>>> collected_;
};

double figure(const json& document, const std::string& configuration, const char* test, const char* name) {
  auto at = json::json_pointer("/configurations") / configuration / test / name / "median";
  return document.contains(at) ? document[at].get<double>() : 0;
}

}  // namespace

Result<json> measure_redis(const RedisSettings& settings) {
  SignalHold hold;
  RedisRun run(settings, hold);
  Status done = run.prepare();
  for (unsigned i = 0; done.ok() && i < settings.repetitions; i++) done = run.repeat();
  if (!done.ok()) return done;
  json document = run.document();
  document["goals"] = json::array();
  for (const Goal& goal : redis_goals(document)) document["goals"].push_back(goal.to_json());
  return document;
}

Result<json> parse_redis_csv(const std::string& text) {
  std::istringstream lines(text);
  std::string names, values;
  std::getline(lines, names);
  std::getline(lines, values);
  std::istringstream name_cells(names), value_cells(values);
  std::map<std::string, double> found;
  for (std::string name, value; std::getline(name_cells, name, ',') && std::getline(value_cells, value, ',');) {
    std::erase(name, '"');
    std::erase(value, '"');
    found[name] = strtod(value.c_str(), nullptr);
  }
  if (found["rps"] <= 0) return Status::error(EINVAL, "unexpected output of redis-benchmark: {}", text);
  return json{{"ops_per_s", found["rps"]},
              {"p50_us", 1000 * found["p50_latency_ms"]},
              {"p99_us", 1000 * found["p99_latency_ms"]}};
}

std::vector<Goal> redis_goals(const json& document) {
  std::vector<Goal> goals;
  for (const char* test : kTests) {
    double swap = figure(document, "zram swap", test, "ops_per_s");
    double native = figure(document, "native", test, "ops_per_s");
    if (swap > 0) {
      goals.push_back({fmt::format("{}: shm, times the operations of zram swap", test),
                       figure(document, "shm", test, "ops_per_s") / swap, 2, true, "x"});
    }
    goals.push_back({fmt::format("{}: all near, lost against native", test),
                     100 * (1 - figure(document, "shm, all near", test, "ops_per_s") / native), 3, false, "%"});
  }
  return goals;
}

std::string redis_text(const json& document) {
  const json& settings = document["settings"];
  std::string text = machine_text(document["machine"]) + "\n";
  text += fmt::format("{} keys, {} B values, {} in flight, {:.0f}% of the heap near; medians of {} runs\n\n",
                      settings["keys"].get<uint64_t>(), settings["value_bytes"].get<unsigned>(),
                      settings["in_flight"].get<unsigned>(), 100 * settings["local_share"].get<double>(),
                      settings["repetitions"].get<unsigned>());
  std::vector<std::vector<std::string>> table = {
      {"", "SET ops/s", "p50 us", "p99 us", "B written back", "GET ops/s", "p50 us", "p99 us", "B written back"}};
  for (const char* configuration : {"native", "shm", "tcp", "tcp, lines", "zram swap", "shm, all near"}) {
    if (!document["configurations"].contains(configuration)) continue;
    std::vector<std::string> row = {configuration};
    for (const char* test : kTests) {
      for (const char* name : kFigures) {
        row.push_back(fmt::format("{:.0f}", figure(document, configuration, test, name)));
      }
    }
    table.push_back(row);
  }
  text += format_table(table);
  for (const auto& [configuration, reason] : document["skipped"].items()) {
    text += fmt::format("{}: not run: {}\n", configuration, reason.get<std::string>());
  }
  text += "\n";
  for (const Goal& goal : redis_goals(document)) text += goal.text() + "\n";
  return text;
}

}  // namespace farside::bench
