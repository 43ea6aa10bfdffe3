// The second view of `farside top`: memory servers, their clients by host, and the servers of a pool, from metrics.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/top/metrics_text.h"

namespace farside::top {

struct ServerRow {
  std::string server,
      part;  // part: a host whose clients use the server, or a server of its pool; "": the server itself
  uint64_t clients = 0, lent = 0, reserved = 0, stored = 0, used = 0, overflow = 0;  // bytes but for clients
  double operations = 0, bytes = 0;                                                  // a second, since the last look
  double mean_us = 0, p99_us = 0;  // of the time in the server; p99: not above this, in steps of four; 0: no operation
  bool replies = true;
};

// The rows of one server. before: its metrics at the last look, so many seconds ago.
std::vector<ServerRow> rows_of(const std::string& server, const Metrics& now, const Metrics& before, double seconds);

std::string to_text(const std::vector<ServerRow>& rows);
nlohmann::json to_json(const ServerRow& row);

class ServerSampler {
 public:
  // addresses: of the servers' metrics, separated by commas.
  explicit ServerSampler(const std::string& addresses);
  // Waits for servers that do not reply, a second each.
  void look();
  const std::vector<ServerRow>& rows() const { return rows_; }

 private:
  struct Server {
    std::string address;
    Metrics metrics = {};
    std::chrono::steady_clock::time_point seen = {};
  };
  std::vector<Server> servers_;
  std::vector<ServerRow> rows_;
};

}  // namespace farside::top
