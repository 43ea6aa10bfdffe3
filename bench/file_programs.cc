#include "bench/file_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/log.h"
#include "base/size.h"
#include "bench/redis.h"
#include "bench/redis_server.h"
#include "launch/installation.h"
#include "launch/run_captured.h"
#include "measure/random.h"
#include "measure/statistics.h"
#include "measure/swap.h"
#include "report/format.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr double kMaxSeconds = 300;  // of one run
constexpr unsigned kValueBytes = 512, kInFlight = 16;
constexpr uint64_t kRedisBytesPerKey = 640, kRedisRequestsPerKey = 1;
constexpr uint64_t kSortBytesPerLine = 64;  // in sort's memory
constexpr uint64_t kSqliteBytesPerRow = 128;
constexpr uint64_t kSwapAllowance = 256 * kMiB;

// What a run of a program gave: its value, and what it held.
struct Measured {
  double value = 0;
  uint64_t bytes = 0;
};

class Programs {
 public:
  Programs(const FileSettings& settings, const SignalHold& hold, std::map<std::string, std::string>* skipped)
      : settings_(settings), hold_(hold), skipped_(skipped), progress_(9 * settings.repetitions, settings.quiet) {}

  Result<json> run() {
    auto installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    directory_ = std::move(*directory);
    json all = json::array();
    for (const auto& [name, unit, measure] : programs()) {
      Result<json> made = compare(name, unit, measure);
      if (made.ok()) all.push_back(std::move(*made));
      else if (made.status().code() == EINTR) return made.status();
      else (*skipped_)[name] = made.status().text();
    }
    return all;
  }

 private:
  using Measure = std::function<Result<Measured>(const Words& launcher)>;
  struct Program {
    const char *name, *unit;
    Measure measure;
  };

  std::vector<Program> programs() {
    return {{"redis, GET", "thousand/s", [this](const Words& launcher) { return measure_redis_get(launcher); }},
            {"sort", "s", [this](const Words& launcher) { return measure_command(launcher, sort()); }},
            {"SQLite", "s", [this](const Words& launcher) { return measure_command(launcher, sqlite()); }}};
  }

  // The native run shows what the program holds.
  Result<json> compare(const char* name, const char* unit, const Measure& measure) {
    std::map<std::string, std::vector<double>> values;
    for (unsigned i = 0; i < settings_.repetitions; i++) {
      progress_.step(fmt::format("{}, native", name));
      Result<Measured> native = measure({});
      if (!native.ok()) return native.status();
      values["native"].push_back(native->value);
      progress_.step(fmt::format("{}, far file", name));
      Result<Measured> far = measure(far_launcher(native->bytes));
      if (!far.ok()) return far.status();
      values["far file"].push_back(far->value);
      progress_.step(fmt::format("{}, kernel swap", name));
      Result<Measured> swapped = measure_swap(measure, native->bytes);
      if (swapped.ok()) values["kernel swap"].push_back(swapped->value);
      else if (swapped.status().code() == EINTR) return swapped.status();
      else (*skipped_)[fmt::format("{}, kernel swap", name)] = swapped.status().text();
    }
    json row = {{"name", name}, {"unit", unit}};
    for (const auto& [configuration, measured] : values) row[configuration] = summary(measured);
    return row;
  }

  // At least what `farside run` demands.
  double near_share(uint64_t bytes) const {
    constexpr double kMinNear = 8 * kMiB;
    return std::max(settings_.local, kMinNear / static_cast<double>(bytes));
  }

  Words far_launcher(uint64_t bytes) const {
    return {farside_,
            "run",
            "--quiet",
            "--local",
            fmt::format("{}", static_cast<uint64_t>(near_share(bytes) * static_cast<double>(bytes))),
            "--far",
            fmt::format("file:{}?size={}", settings_.place, 2 * bytes + kSwapAllowance),
            "--"};
  }

  Result<Measured> measure_swap(const Measure& measure, uint64_t bytes) {
    auto swap = FileSwap::create(settings_.place, 2 * bytes + kSwapAllowance);
    if (!swap.ok()) return swap.status();
    auto limit = MemoryLimit::create_for(bytes, near_share(bytes));
    if (!limit.ok()) return limit.status();
    (*limit)->keep_alive();
    Result<Measured> made = measure((*limit)->launcher());
    if (!made.ok() && (*limit)->kills() > 0) return Status::error(ENOMEM, "killed by the kernel for lack of memory");
    return made;
  }

  Result<Measured> measure_redis_get(const Words& launcher) {
    uint64_t keys = settings_.bytes / kRedisBytesPerKey, requests = kRedisRequestsPerKey * keys;
    auto redis = RedisServer::start(hold_, launcher);
    if (!redis.ok()) return redis.status();
    if (Status filled = (*redis)->fill(keys, kValueBytes); !filled.ok()) return filled;
    uint64_t bytes = (*redis)->resident_bytes();
    auto csv = (*redis)->benchmark("get", requests, keys, kValueBytes, kInFlight);
    Result<json> figures = csv.ok() ? parse_redis_csv(*csv) : csv.status();
    if (!figures.ok()) return figures.status();
    return Measured{(*figures)["ops_per_s"].get<double>() / 1000, bytes};
  }

  Result<Measured> measure_command(const Words& launcher, Words command) {
    Result<std::string> program = find_in_path(command[0]);
    if (!program.ok()) return Status::error(ENOENT, "{} is not in PATH", command[0]);
    Words words = launcher;
    words.insert(words.end(), command.begin(), command.end());
    words[0] = launcher.empty() ? *program : launcher[0];
    auto done = run_captured(words, hold_, {.seconds = kMaxSeconds, .keep_output = false});
    if (!done.ok()) return done.status();
    if (!done->succeeded()) return Status::error(ECHILD, "{}: {}", command[0], done->outcome());
    return Measured{done->seconds, done->peak_bytes};
  }

  // Random lines, in the memory of sort only.
  Words sort() {
    std::string input = directory_->file("lines");
    if (!std::ifstream(input)) {
      std::ofstream lines(input);
      Random random(1);
      for (uint64_t i = 0; i < settings_.bytes / kSortBytesPerLine; i++) lines << random.next() << '\n';
    }
    return {"sort", "--parallel=1", "--buffer-size=75%", input};
  }

  // A table in memory, filled, indexed, and read at random by its index.
  Words sqlite() const {
    uint64_t rows = settings_.bytes / kSqliteBytesPerRow;
    auto numbers = [](uint64_t count) {
      return fmt::format("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) ", count);
    };
    std::string text = fmt::format(
        "PRAGMA temp_store = MEMORY; CREATE TABLE t (k INTEGER, v TEXT);"
        "INSERT INTO t {}SELECT i * 2654435761 % {}, printf('%060d', i) FROM n; CREATE INDEX x ON t (k);"
        "{}SELECT sum(length(v)) FROM n JOIN t ON k = i * 40503 % {};",
        numbers(rows), rows, numbers(rows / 4), rows);
    return {"sqlite3", ":memory:", text};
  }

  const FileSettings& settings_;
  const SignalHold& hold_;
  std::map<std::string, std::string>* const skipped_;
  Progress progress_;
  std::string farside_;
  std::unique_ptr<PrivateDirectory> directory_;
};

}  // namespace

Result<json> measure_programs(const FileSettings& settings, const SignalHold& hold,
                              std::map<std::string, std::string>* skipped) {
  return Programs(settings, hold, skipped).run();
}

}  // namespace farside::bench
