// redis-server as a child process in a private directory. It is started by a launcher (words that precede its command
// line, such as `farside run --`), and filled and loaded over its Unix socket.
#pragma once
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/child.h"
#include "launch/embedded_server.h"

namespace farside::bench {

Result<std::string> find_in_path(const std::string& program);

class RedisServer {
 public:
  static Result<std::unique_ptr<RedisServer>> start(const SignalHold& hold, const std::vector<std::string>& launcher);
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // Stores every key that redis-benchmark -r KEYS may request.
  Status fill(uint64_t keys, unsigned value_bytes);
  // Runs one test of redis-benchmark and returns its CSV output.
  Result<std::string> benchmark(const char* test, uint64_t requests, uint64_t keys, unsigned value_bytes,
                                unsigned in_flight);
  // Resident size of the process `pid_`. With a launcher that does not exec, that is the launcher.
  uint64_t resident_bytes();
  // Bytes written back to far memory so far, of all processes below the launcher; 0 without far memory.
  uint64_t bytes_written();

 private:
  explicit RedisServer(const SignalHold& hold) : hold_(hold) {}
  Status connect_within(uint64_t seconds);
  Status send(const std::string& text);
  Status receive_lines(uint64_t count);
  bool ended();

  const SignalHold& hold_;
  std::unique_ptr<PrivateDirectory> directory_;
  std::string socket_path_;
  pid_t pid_ = -1;  // of the launcher
  int socket_ = -1;
  std::string input_;
};

// Parses the output of redis-benchmark --csv for one test: {"ops_per_s", "p50_us", "p99_us"}. EINVAL for any other
// text.
Result<nlohmann::json> parse_redis_csv(const std::string& text);

}  // namespace farside::bench
