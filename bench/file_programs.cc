// The programs of `farside bench file`, with a share of what they hold in RAM: over far memory in a file, and on kernel
// swap there.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/size.h"
#include "bench/redis_server.h"
#include "bench/suites.h"
#include "launch/installation.h"
#include "launch/run_captured.h"
#include "measure/random.h"
#include "measure/swap.h"

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
  explicit Programs(const Setup& setup) : settings_(setup.settings()), hold_(setup.hold()) {}

  using Measure = Result<Measured> (Programs::*)(const Words& launcher) const;

  // The native run shows what the program holds.
  Result<json> compare(Measure measure) {
    auto installation = find_installation();
    if (!installation.ok()) return installation.status();
    farside_ = installation->farside();
    Result<Measured> native = (this->*measure)({});
    if (!native.ok()) return native.status();
    Result<Measured> far = (this->*measure)(far_launcher(native->bytes));
    if (!far.ok()) return far.status();
    json rows = {row("native", native->value), row("far file", far->value)};
    Result<Measured> swapped = measure_swap(measure, native->bytes);
    if (swapped.ok()) rows.push_back(row("kernel swap", swapped->value));
    else if (swapped.status().code() == EINTR) return swapped.status();
    else rows.push_back({{"key", {{"configuration", "kernel swap"}}}, {"skipped", swapped.status().text()}});
    return rows;
  }

  Result<Measured> redis(const Words& launcher) const { return measure_redis_get(launcher); }
  Result<Measured> sort(const Words& launcher) const {
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    return measure_command(launcher, sort_command((*directory)->file("lines")));
  }
  Result<Measured> sqlite(const Words& launcher) const { return measure_command(launcher, sqlite_command()); }

 private:
  static json row(const char* configuration, double value) {
    return make_row({{"configuration", configuration}}, {{"value", value}});
  }

  // At least what `farside run` demands.
  double near_share(uint64_t bytes) const {
    constexpr double kMinNear = 8 * kMiB;
    return std::max(settings_.share, kMinNear / static_cast<double>(bytes));
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

  Result<Measured> measure_swap(Measure measure, uint64_t bytes) const {
    auto swap = FileSwap::create(settings_.place, 2 * bytes + kSwapAllowance);
    if (!swap.ok()) return swap.status();
    auto limit = MemoryLimit::create_for(bytes, near_share(bytes));
    if (!limit.ok()) return limit.status();
    (*limit)->keep_alive();
    Result<Measured> made = (this->*measure)((*limit)->launcher());
    if (!made.ok() && (*limit)->kills() > 0) return Status::error(ENOMEM, "killed by the kernel for lack of memory");
    return made;
  }

  Result<Measured> measure_redis_get(const Words& launcher) const {
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

  Result<Measured> measure_command(const Words& launcher, const Words& command) const {
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
  Words sort_command(const std::string& input) const {
    std::ofstream lines(input);
    Random random(1);
    for (uint64_t i = 0; i < settings_.bytes / kSortBytesPerLine; i++) lines << random.next() << '\n';
    return {"sort", "--parallel=1", "--buffer-size=75%", input};
  }

  // A table in memory, filled, indexed, and read at random by its index.
  Words sqlite_command() const {
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

  const Settings& settings_;
  const SignalHold& hold_;
  std::string farside_;
};

struct Program {
  const char *name, *unit;
  Programs::Measure measure;
};
constexpr Program kPrograms[] = {
    {"redis, GET", "thousand/s", &Programs::redis}, {"sort", "s", &Programs::sort}, {"SQLite", "s", &Programs::sqlite}};

std::vector<Measurement> measurements(const Setup& setup) {
  std::vector<Measurement> all;
  for (const Program& program : kPrograms) {
    if (!setup.settings().programs) break;
    all.push_back({.key = {{"program", program.name}, {"unit", program.unit}},
                   .name = program.name,
                   .run = [&setup, &program] { return Programs(setup).compare(program.measure); },
                   .may_fail = true,
                   .in_parent = true});
  }
  return all;
}

}  // namespace

Suite file_programs_suite() {
  return {.name = "programs",
          .measurements = measurements,
          .tables = {table("programs", {"program", "unit"}, {col("", "value", 2)}).by("configuration", "kernel swap")}};
}

}  // namespace farside::bench
