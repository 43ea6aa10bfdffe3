// A proxy between a client and a server that simulates network failures for tests: it resets connections, stalls
// transfers, and damages data. cut(), `stalled` and `damage` may be used while connections are open.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "fixture.h"

namespace farside::testing {

class Proxy {
 public:
  explicit Proxy(uint16_t server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener_, 64);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Proxy() {
    stalled = false;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    cut();
    for (auto& t : pumps_) t.join();
    for (auto [client, server] : pairs_) {
      close(client);
      close(server);
    }
    close(listener_);
  }
  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

  // Resets all connections on both sides. Data in transit is lost.
  void cut() {
    std::lock_guard hold(mutex_);
    for (; cut_ < pairs_.size(); cut_++) {
      for (int fd : {pairs_[cut_].second, pairs_[cut_].first}) {
        linger at_once = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        sockaddr unspecified = {AF_UNSPEC, {}};
        // Sends the reset at once, although threads still use the descriptor. By system call, because the thread
        // sanitizer treats connect() as the creation of a descriptor, and every concurrent recv() as a race.
        syscall(SYS_connect, fd, &unspecified, sizeof unspecified);
        shutdown(fd, SHUT_RDWR);
      }
    }
  }

  std::atomic<bool> stalled{false};  // no data is forwarded, that of new connections included
  std::atomic<int> damage{0};        // blocks of data, in either direction, in each of which one bit is changed

 private:
  static sockaddr_in loopback(uint16_t port) { return {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}}; }
  void accept_all() {
    for (;;) {
      int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = loopback(server_port_);
      if (::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
        close(client);
        close(server);
        continue;
      }
      std::lock_guard hold(mutex_);
      pairs_.push_back({client, server});
      pumps_.emplace_back([this, client, server] { pump(client, server); });
      pumps_.emplace_back([this, client, server] { pump(server, client); });
    }
  }
  void pump(int from, int to) {
    std::vector<char> bytes(64 * 1024);
    for (;;) {
      ssize_t n = recv(from, bytes.data(), bytes.size(), 0);
      while (stalled) os::nanosleep_ns(1'000'000);
      if (n > 0 && damage > 0 && damage-- > 0) bytes[static_cast<size_t>(n) / 2] ^= 8;
      if (n <= 0 || send(to, bytes.data(), static_cast<size_t>(n), MSG_NOSIGNAL) != n) break;
    }
    shutdown(to, SHUT_WR);
  }

  uint16_t server_port_, port_;
  int listener_;
  std::thread acceptor_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::pair<int, int>> pairs_;
  size_t cut_ = 0;  // the first cut_ pairs were reset
  std::vector<std::thread> pumps_;
};

}  // namespace farside::testing
