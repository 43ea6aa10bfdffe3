// Serves metrics over HTTP, enough for Prometheus and curl: GET of /metrics or /, one thread, one request per
// connection.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace farside::cli {

class MetricsEndpoint {
 public:
  // `address` is HOST:PORT with a numeric host; port 0 picks a free one. `text` returns the metrics and is
  // called on the endpoint's thread for every GET of them.
  static Result<std::unique_ptr<MetricsEndpoint>> start(const std::string& address, std::function<std::string()> text);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;
  uint16_t port() const { return port_; }

 private:
  MetricsEndpoint(int listener, uint16_t port, std::function<std::string()> text);
  void serve();
  void answer(int fd) const;

  int listener_;
  uint16_t port_;
  std::function<std::string()> text_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The complete response to a request.
std::string http_reply(std::string_view request, const std::function<std::string()>& text);

// Splits "127.0.0.1:9170" or "[::1]:9170"; EINVAL with a message otherwise.
struct HostPort {
  std::string host;
  std::string port;
  bool is_loopback() const;
};
Result<HostPort> parse_host_port(const std::string& address);

}  // namespace farside::cli
