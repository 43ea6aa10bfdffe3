#include "bench/offload.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "launch/embedded_server.h"
#include "launch/installation.h"
#include "launch/run_captured.h"
#include "measure/process.h"
#include "report/files.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;

constexpr const char* kModes[] = {"native", "local", "server", "automatic"};
constexpr const char* kToken = "offload";

// A memory server over tcp, in a process of its own, which ends with this object or this process.
class ServerProcess {
 public:
  ~ServerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  Status start(const Installation& installation, uint64_t bytes) {
    int fds[2];
    if (pipe(fds) != 0) return Status::error(errno, "cannot start a memory server: {}", strerror(errno));
    pid_ = fork();
    if (pid_ == 0) serve(installation, bytes, fds[1]);
    close(fds[1]);
    bool started = pid_ > 0 && read(fds[0], &port_, sizeof port_) == sizeof port_;
    close(fds[0]);
    return started ? Status() : Status::error(EIO, "cannot start a memory server that executes functions");
  }
  std::string address() const { return fmt::format("tcp://127.0.0.1:{}", port_); }

 private:
  [[noreturn]] static void serve(const Installation& installation, uint64_t bytes, int to) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    server::ServerConfig config;
    config.memory = bytes;
    config.token = kToken;
    config.listen = "127.0.0.1:0";
    config.calls.host_program = installation.offload_host();
    auto server = server::Server::start(config);
    if (!server.ok()) _exit(1);
    uint16_t port = (*server)->tcp_port();
    if (write(to, &port, sizeof port) != sizeof port) _exit(1);
    for (;;) pause();
  }

  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

class OffloadRun {
 public:
  OffloadRun(const OffloadSettings& settings, const Installation& installation)
      : settings_(settings), installation_(installation), progress_(3, settings.quiet) {}

  Status run() {
    ServerProcess server;
    if (Status s = server.start(installation_, 4 * settings_.bytes + kSpare); !s.ok()) return s;
    auto directory = PrivateDirectory::create();
    if (!directory.ok()) return directory.status();
    std::string token = (*directory)->file("token");
    Status ready = write_file(token, std::string(kToken) + "\n");
    if (ready.ok()) chmod(token.c_str(), 0600);
    if (ready.ok()) ready = measure("native", {}, {"local"});
    if (ready.ok()) ready = measure("tcp", {"--far", server.address(), "--token-file", token}, kFarModes);
    if (ready.ok()) ready = measure("shm", {"--offload"}, kFarModes);
    return ready;
  }

  json document() const {
    json made = {{"benchmark", "offload"}, {"machine", machine_json()}, {"cells", json::array()}};
    made["settings"] = {
        {"bytes", settings_.bytes}, {"local_share", settings_.local}, {"repetitions", settings_.repetitions}};
    for (const char* transport : {"tcp", "shm"}) {
      for (const std::string& query : queries_) {
        json ms = times_.at(transport).at(query);
        ms["native"] = times_.at("native").at(query).at("local");
        made["cells"].push_back({{"transport", transport}, {"query", query}, {"ms", ms}});
      }
    }
    return made;
  }

 private:
  using Times = std::map<std::string, std::map<std::string, double>>;  // by query and mode
  static constexpr uint64_t kSpare = 256 * kMiB;
  const std::vector<std::string> kFarModes = {"local", "server", "automatic"};

  // Under Farside unless the name is native.
  Status measure(const std::string& name, const std::vector<std::string>& options,
                 const std::vector<std::string>& modes) {
    progress_.step(name.c_str());
    std::vector<std::string> words;
    if (name != "native") {
      auto share = static_cast<uint64_t>(settings_.local * static_cast<double>(settings_.bytes));
      uint64_t local = std::max(share + kOwn, kMinLocal);
      words = {installation_.farside(), "run", "--quiet", "--local", std::to_string(local)};
      words.insert(words.end(), options.begin(), options.end());
      words.push_back("--");
    }
    words.push_back(installation_.applications() + "/offload_queries");
    words.push_back(std::to_string(settings_.bytes));
    words.push_back(std::to_string(settings_.repetitions));
    words.insert(words.end(), modes.begin(), modes.end());
    auto run = run_captured(words, hold_);
    if (!run.ok()) return run.status();
    if (!run->succeeded()) return Status::error(EIO, "offload_queries failed: {}", run->outcome());
    return read_times(run->output, &times_[name]);
  }

  Status read_times(const std::string& output, Times* times) {
    std::istringstream lines(output);
    std::string query, mode, seconds;
    queries_.clear();
    while (std::getline(lines, query, '\t') && std::getline(lines, mode, '\t') && std::getline(lines, seconds)) {
      if (queries_.empty() || queries_.back() != query) queries_.push_back(query);
      (*times)[query][mode] = std::stod(seconds) * 1000;
    }
    return queries_.empty() ? Status::error(EBADMSG, "offload_queries printed no times") : Status();
  }

  static constexpr uint64_t kOwn = 4 * kMiB;  // of the program, beside its data
  static constexpr uint64_t kMinLocal = 8 * kMiB;
  const OffloadSettings& settings_;
  const Installation installation_;
  SignalHold hold_;
  Progress progress_;
  std::vector<std::string> queries_;
  std::map<std::string, Times> times_;
};

double ms_of(const json& cell, const char* mode) { return cell["ms"][mode].get<double>(); }

std::string goal(const json& cell, const char* what, double value, bool at_least, double limit) {
  bool met = at_least ? value >= limit : value <= limit;
  return fmt::format("{}  {}, {}: {}: {:.2f}x (goal: at {} {}x)\n", met ? "met   " : "missed",
                     cell["transport"].get<std::string>(), cell["query"].get<std::string>(), what, value,
                     at_least ? "least" : "most", limit);
}

// The goals are for tcp. page_read_ms: 500 reads of a far page.
std::string goals(const json& cell, double page_read_ms) {
  if (cell["transport"] != "tcp") return "";
  double native = ms_of(cell, "native"), local = ms_of(cell, "local"), server = ms_of(cell, "server"),
         automatic = ms_of(cell, "automatic");
  std::string text;
  bool chain = cell["query"] == "chain of 8" || cell["query"] == "chain of 8 objects";
  bool scan = !chain && cell["query"] != "one word" && cell["query"] != "map look-up";
  if (scan) {
    text += goal(cell, "times as fast offloaded as far", local / server, true, 5);
    text += goal(cell, "share of native speed", native / server, true, 0.8);
  } else if (chain) {
    text += goal(cell, "times as fast offloaded as far", local / server, true, 4);
  } else {
    text += goal(cell, "time of a call in those of a read of a page", server / page_read_ms, false, 1.3);
  }
  return text +
         goal(cell, "automatic, time in those of the better way", automatic / std::min(local, server), false, 1.05);
}

}  // namespace

Result<json> measure_offload(const OffloadSettings& settings) {
  auto installation = find_installation();
  if (!installation.ok()) return installation.status();
  OffloadRun run(settings, *installation);
  if (Status s = run.run(); !s.ok()) return s;
  return run.document();
}

std::string offload_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"ms, medians", "", "native", "far", "offloaded", "automatic", "far / offloaded", "native / offloaded"}};
  std::string met;
  double page_read_ms = 0;
  for (const json& cell : document["cells"]) {
    if (cell["query"] == "one word" && cell["transport"] == "tcp") page_read_ms = ms_of(cell, "local");
  }
  for (const json& cell : document["cells"]) {
    std::vector<std::string> row = {cell["query"], cell["transport"]};
    for (const char* mode : kModes) row.push_back(fmt::format("{:.2f}", ms_of(cell, mode)));
    row.push_back(fmt::format("{:.1f}x", ms_of(cell, "local") / ms_of(cell, "server")));
    row.push_back(fmt::format("{:.2f}x", ms_of(cell, "native") / ms_of(cell, "server")));
    rows.push_back(std::move(row));
    met += goals(cell, page_read_ms);
  }
  return machine_text(document["machine"]) + "\n\n" + format_table(rows) + "\n" + met;
}

}  // namespace farside::bench
