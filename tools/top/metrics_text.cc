#include "tools/top/metrics_text.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "cli/metrics_http.h"

namespace farside::top {
namespace {

// NAME="VALUE",...} with \" and \\ and \n in values. Returns what follows.
std::string_view read_labels(std::string_view text, std::map<std::string, std::string>* labels) {
  while (!text.empty() && text.front() != '}') {
    size_t equal = text.find("=\"");
    if (equal == text.npos) return {};
    std::string& value = (*labels)[std::string(text.substr(0, equal))];
    text.remove_prefix(equal + 2);
    for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
      if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
      value += text.front();
    }
    text.remove_prefix(std::min<size_t>(text.size(), 1));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return text.substr(std::min<size_t>(text.size(), 1));
}

class Socket {
 public:
  explicit Socket(const addrinfo& address) : fd_(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    constexpr timeval kWait = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kWait, sizeof kWait);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &kWait, sizeof kWait);  // also of connect
    connected_ = connect(fd_, address.ai_addr, address.ai_addrlen) == 0;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // The reply as a whole; "" if there is none.
  std::string ask(const std::string& request) const {
    std::string reply;
    char part[4096];
    if (!connected_ || send(fd_, request.data(), request.size(), MSG_NOSIGNAL) < 0) return reply;
    for (ssize_t got; (got = recv(fd_, part, sizeof part, 0)) > 0;) reply.append(part, static_cast<size_t>(got));
    return reply;
  }

 private:
  int fd_;
  bool connected_;
};

}  // namespace

double value_of(const Metrics& metrics, const std::string& name) {
  auto found = metrics.find(name);
  return found == metrics.end() || found->second.empty() ? 0 : found->second.front().value;
}

Metrics parse_metrics(std::string_view text) {
  Metrics metrics;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    size_t name = line.find_first_of("{ ");
    if (line.starts_with('#') || name == line.npos) continue;
    MetricSample sample;
    std::string_view rest = line.substr(name + 1);
    if (line[name] == '{') rest = read_labels(rest, &sample.labels);
    sample.value = strtod(std::string(rest).c_str(), nullptr);
    metrics[std::string(line.substr(0, name))].push_back(std::move(sample));
  }
  return metrics;
}

Result<Metrics> fetch_metrics(const std::string& address) {
  auto place = cli::parse_host_port("--servers", address);
  if (!place.ok()) return place.status();
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int error = getaddrinfo(place->host.c_str(), place->port.c_str(), &hints, &found))
    return Status::error(EHOSTUNREACH, "--servers {}: {}", address, gai_strerror(error));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::string reply = Socket(*found).ask(fmt::format("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", address));
  size_t body = reply.find("\r\n\r\n");
  if (body == reply.npos)
    return Status::error(
        ECONNREFUSED, "--servers {}: no metrics come from there; give the address of farside serve --metrics", address);
  return parse_metrics(std::string_view(reply).substr(body + 4));
}

}  // namespace farside::top
