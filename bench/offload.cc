// `farside bench offload`: queries on far memory that the program executes natively, over far memory, or on the memory
// server, over tcp and over shared memory.
#include <fmt/format.h>
#include <sys/stat.h>

#include <map>
#include <sstream>

#include "base/bits.h"
#include "bench/suites.h"
#include "launch/installation.h"
#include "launch/run_captured.h"
#include "report/files.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;
using Times = std::map<std::string, std::map<std::string, double>>;  // ms, by query and mode

constexpr uint64_t kOwn = 4 * kMiB;  // of the program, beside its data
constexpr uint64_t kMinLocal = 8 * kMiB;
const Words kFarModes = {"local", "server", "automatic"};

// The queries of a run, in order, and their times.
struct Measured {
  Words queries;
  Times times;
};

Result<Measured> parse(const std::string& output) {
  std::istringstream lines(output);
  std::string query, mode, seconds;
  Measured measured;
  while (std::getline(lines, query, '\t') && std::getline(lines, mode, '\t') && std::getline(lines, seconds)) {
    if (measured.queries.empty() || measured.queries.back() != query) measured.queries.push_back(query);
    measured.times[query][mode] = std::stod(seconds) * 1000;
  }
  if (measured.queries.empty()) return Status::error(EBADMSG, "offload_queries printed no times");
  return measured;
}

Result<Measured> run_queries(const Setup& setup, Words words, const Words& modes) {
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  words.insert(words.end(),
               {installation->applications() + "/offload_queries", std::to_string(setup.settings().bytes), "1"});
  words.insert(words.end(), modes.begin(), modes.end());
  auto run = run_captured(words, setup.hold());
  if (!run.ok()) return run.status();
  if (!run->succeeded()) return Status::error(EIO, "offload_queries failed: {}", run->outcome());
  return parse(run->output);
}

Result<Measured> run_far(const Setup& setup, const Words& options) {
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  uint64_t local = std::max(setup.settings().near_bytes() + kOwn, kMinLocal);
  Words words = {installation->farside(), "run", "--quiet", "--local", std::to_string(local)};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  return run_queries(setup, words, kFarModes);
}

void add_rows(const char* transport, const Measured& far, Times& native, json* rows) {
  for (const std::string& query : far.queries) {
    std::map<std::string, double> ms = far.times.at(query);
    rows->push_back(
        make_row({{"transport", transport}, {"query", query}}, {{"native", native[query]["local"]},
                                                                {"local", ms["local"]},
                                                                {"server", ms["server"]},
                                                                {"automatic", ms["automatic"]},
                                                                {"better", std::min(ms["local"], ms["server"])}}));
  }
}

// ms of each query: natively once, and in all modes over both transports.
Result<json> measure(const Setup& setup) {
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  std::string token = (*directory)->file("token");
  if (Status s = write_file(token, setup.server().token() + "\n"); !s.ok()) return s;
  chmod(token.c_str(), 0600);
  auto native = run_queries(setup, {}, {"local"});
  if (!native.ok()) return native.status();
  auto tcp = run_far(setup, {"--far", setup.server().tcp(), "--token-file", token});
  if (!tcp.ok()) return tcp.status();
  auto shm = run_far(setup, {"--offload"});
  if (!shm.ok()) return shm.status();
  json rows = json::array();
  add_rows("tcp", *tcp, native->times, &rows);
  add_rows("shm", *shm, native->times, &rows);
  return rows;
}

std::vector<Measurement> measurements(const Setup& setup) {
  auto all = measure_each(setup, measure);
  all[0].name = "queries";
  all[0].in_parent = true;
  return all;
}

// The goals are for tcp.
Target target(const char* what, const Words& queries, const char* figure, Limit limit, const char* per,
              json beside = {}) {
  json at = {{"transport", "tcp"}, {"query", queries}};
  return goal(std::string("{query}: ") + what, figure, limit, at).over(per, std::move(beside));
}

}  // namespace

// "one word" makes 500 reads of a far page.
Suite offload_suite() {
  const Words scans = {"aggregate", "filter, 1 %", "gather", "gather into", "far vector"},
              chains = {"chain of 8", "chain of 8 objects"}, calls = {"one word", "map look-up"};
  Words all = scans;
  all.insert(all.end(), chains.begin(), chains.end());
  all.insert(all.end(), calls.begin(), calls.end());
  return {.name = "offload",
          .measurements = measurements,
          .tables = {table("ms, medians", {"query", "transport"},
                           {col("native", "native", 2), col("far", "local", 2), col("offloaded", "server", 2),
                            col("automatic", "automatic", 2), col("far / offloaded", "local", 1, 1, "server"),
                            col("native / offloaded", "native", 2, 1, "server")})},
          .targets = {target("times as fast offloaded as far", scans, "local", at_least(5), "server"),
                      target("share of native speed", scans, "native", at_least(0.8), "server"),
                      target("times as fast offloaded as far", chains, "local", at_least(4), "server"),
                      target("time of a call in those of a read of a page", calls, "server", at_most(1.3), "local",
                             {{"query", "one word"}}),
                      target("automatic, time in those of the better way", all, "automatic", at_most(1.05), "better")}};
}

}  // namespace farside::bench
