// Serves metrics and the state of a server over HTTP, enough for Prometheus, curl and load balancers: GET of /metrics,
// /healthz and /readyz. One thread serves several clients at once, each with one request and a limited time.
#pragma once
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace farside::cli {

// What the endpoint shows. Its functions are called on the endpoint's thread, for every GET.
struct MetricsPages {
  std::function<std::string()> metrics;
  std::function<Status()> ready;  // why no client should be sent here now
};

class MetricsEndpoint {
 public:
  // `address` is HOST:PORT with a numeric host; port 0 picks a free one.
  static Result<std::unique_ptr<MetricsEndpoint>> start(const std::string& address, MetricsPages pages);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;
  uint16_t port() const { return port_; }

 private:
  struct Connection {
    int fd;
    uint64_t until_ns;
    std::string request, reply;
    bool over = false;
  };

  MetricsEndpoint(int listener, uint16_t port, MetricsPages pages);
  void serve();
  void accept_one();
  void advance(Connection* connection);
  void receive(Connection* connection);
  void send(Connection* connection);

  int listener_;
  uint16_t port_;
  MetricsPages pages_;
  std::list<Connection> connections_;  // of the thread; the oldest first
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The complete response to a request.
std::string http_reply(std::string_view request, const MetricsPages& pages);

// Splits "127.0.0.1:9170" or "[::1]:9170"; EINVAL with a message otherwise.
struct HostPort {
  std::string host;
  std::string port;
  bool is_loopback() const;
  bool is_everywhere() const;  // any address of this machine
};
Result<HostPort> parse_host_port(const char* option, const std::string& address);

}  // namespace farside::cli
