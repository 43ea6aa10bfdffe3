#include "bench/redis_server.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/bits.h"
#include "base/clock.h"
#include "base/os.h"
#include "launch/control_client.h"
#include "launch/program_check.h"
#include "launch/run_captured.h"

namespace farside::bench {
namespace {

constexpr uint64_t kStartSeconds = 60;
constexpr uint64_t kReplySeconds = 120;
constexpr uint64_t kRetryNs = 10'000'000;
constexpr uint64_t kFillBatch = 512;  // commands sent before their replies are read

std::string command(std::initializer_list<std::string> words) {
  std::string text = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return text;
}

// Values that compress badly, like those of redis-benchmark.
std::string value_of(uint64_t key, unsigned bytes) {
  std::string value(bytes, 0);
  uint64_t state = key * 0x9E3779B97F4A7C15u | 1;
  for (char& c : value) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>('0' + (state >> 58));
  }
  return value;
}

}  // namespace

Result<std::string> find_in_path(const std::string& program) {
  const char* path = getenv("PATH");
  Result<std::string> found = find_program(program, path ? path : "/usr/bin:/bin");
  if (found.ok()) return found;
  return Status::error(ENOENT, "{} is not in PATH; install it (Debian: redis-server, redis-tools)", program);
}

Result<std::unique_ptr<RedisServer>> RedisServer::start(const SignalHold& hold,
                                                        const std::vector<std::string>& launcher) {
  auto directory = PrivateDirectory::create();
  if (!directory.ok()) return directory.status();
  std::unique_ptr<RedisServer> made(new RedisServer(hold));
  made->directory_ = std::move(*directory);
  made->socket_path_ = made->directory_->file("redis.sock");
  std::vector<std::string> words = launcher;
  words.insert(words.end(), {"redis-server", "--port", "0", "--unixsocket", made->socket_path_, "--save", "",
                             "--appendonly", "no", "--daemonize", "no", "--logfile", made->directory_->file("log")});
  Result<std::string> path = words[0].starts_with('/') ? Result<std::string>(words[0]) : find_in_path(words[0]);
  if (!path.ok()) return path.status();
  Result<pid_t> child = start_child(*path, words, hold);
  if (!child.ok()) return child.status();
  made->pid_ = *child;
  Status connected = made->connect_within(kStartSeconds);
  if (!connected.ok()) return connected;
  return made;
}

bool RedisServer::ended() {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

Status RedisServer::connect_within(uint64_t seconds) {
  sockaddr_un address = {AF_UNIX, {}};
  if (socket_path_.size() >= sizeof address.sun_path)
    return Status::error(ENAMETOOLONG, "{} is too long", socket_path_);
  memcpy(address.sun_path, socket_path_.c_str(), socket_path_.size());
  socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  timeval timeout = {static_cast<time_t>(kReplySeconds), 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  for (uint64_t begin = now_ns(); now_ns() - begin < seconds * 1'000'000'000;) {
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return {};
    if (ended()) return Status::error(ECHILD, "redis-server ended during startup");
    if (stop_signal_within(hold_, 0)) return Status::error(EINTR, "stopped by a signal");
    os::nanosleep_ns(kRetryNs);
  }
  return Status::error(ETIMEDOUT, "redis-server accepted no connection within {} s", seconds);
}

Status RedisServer::send(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (n < 0) return Status::error(errno, "cannot send to redis-server: {}", strerror(errno));
    done += static_cast<size_t>(n);
  }
  return {};
}

// Reads `count` one-line replies. An error reply is returned as an error.
Status RedisServer::receive_lines(uint64_t count) {
  char buffer[16384];
  while (count > 0) {
    size_t end = input_.find('\n');
    if (end != input_.npos) {
      if (input_[0] == '-') return Status::error(EIO, "redis-server returned an error: {}", input_.substr(0, end));
      input_.erase(0, end + 1);
      count--;
      continue;
    }
    ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
    if (n <= 0)
      return Status::error(EIO, "redis-server closed the connection, or did not reply for {} s", kReplySeconds);
    input_.append(buffer, static_cast<size_t>(n));
  }
  return {};
}

Status RedisServer::fill(uint64_t keys, unsigned value_bytes) {
  for (uint64_t first = 0; first < keys; first += kFillBatch) {
    uint64_t end = std::min(keys, first + kFillBatch);
    std::string batch;
    for (uint64_t key = first; key < end; key++) {
      batch += command({"SET", fmt::format("key:{:012}", key), value_of(key, value_bytes)});
    }
    Status done = send(batch);
    if (done.ok()) done = receive_lines(end - first);
    if (!done.ok()) return done;
    if (stop_signal_within(hold_, 0)) return Status::error(EINTR, "stopped by a signal");
  }
  return {};
}

Result<std::string> RedisServer::benchmark(const char* test, uint64_t requests, uint64_t keys, unsigned value_bytes,
                                           unsigned in_flight) {
  Result<std::string> path = find_in_path("redis-benchmark");
  if (!path.ok()) return path.status();
  auto text = [](uint64_t number) { return std::to_string(number); };
  auto run = run_captured({*path, "-s", socket_path_, "-t", test, "-n", text(requests), "-r", text(keys), "-d",
                           text(value_bytes), "-c", "1", "-P", text(in_flight), "--csv"},
                          hold_);
  if (!run.ok()) return run.status();
  return run->succeeded() ? Result<std::string>(run->output)
                          : Status::error(EIO, "redis-benchmark: {}", run->outcome());
}

uint64_t RedisServer::resident_bytes() {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * kPageSize;
}

uint64_t RedisServer::bytes_written() {
  uint64_t sum = 0;
  for (const auto& process : ControlledProcess::find_all(pid_)) {
    Result<nlohmann::json> report = process->ask();
    if (report.ok()) sum += report->value("bytes_written", uint64_t{0});
  }
  return sum;
}

RedisServer::~RedisServer() {
  if (pid_ > 0 && socket_ >= 0 && send(command({"SHUTDOWN", "NOSAVE"})).ok()) {
    char rest[64];
    while (recv(socket_, rest, sizeof rest, 0) > 0) {}  // until the server closes the connection
  } else if (pid_ > 0) {
    kill(pid_, SIGTERM);
  }
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  if (socket_ >= 0) close(socket_);
}

Result<nlohmann::json> parse_redis_csv(const std::string& text) {
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
  return nlohmann::json{{"ops_per_s", found["rps"]},
                        {"p50_us", 1000 * found["p50_latency_ms"]},
                        {"p99_us", 1000 * found["p99_latency_ms"]}};
}

}  // namespace farside::bench
