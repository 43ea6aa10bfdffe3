// Support for tests of connecting: servers that execute scripts, in this process.
#pragma once
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "transport/dial.h"
#include "transport/retry_policy.h"
#include "transport/test_support.h"

namespace farside::transport {

inline Endpoint endpoint_of(int fd, const char* name) {
  Endpoint e;
  e.length = sizeof e.address;
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&e.address), &e.length), 0);
  strcpy(e.name, name);
  return e;
}

// A socket on loopback. Connections to it are refused until listen() is called.
inline Fd bound_socket() {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Serves one connection at a time. Each is handled by the next script, and by the last one when there are no more.
class Listener {
 public:
  using Script = std::function<void(int fd)>;
  explicit Listener(std::vector<Script> scripts) : socket_(bound_socket()), scripts_(std::move(scripts)) {
    EXPECT_EQ(::listen(socket_.get(), 16), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Listener() { stop(); }
  // Once the last script has ended; what scripts wrote may be read then.
  void stop() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  Endpoint endpoint() const { return endpoint_of(socket_.get(), "tcp://test"); }
  int accepted() const { return accepted_; }

 private:
  void serve() {
    for (;;) {
      Fd fd(::accept(socket_.get(), nullptr, nullptr));
      if (fd.get() < 0) return;
      size_t number = static_cast<size_t>(accepted_++);
      scripts_[std::min(number, scripts_.size() - 1)](fd.get());
    }
  }
  Fd socket_;
  std::vector<Script> scripts_;
  std::atomic<int> accepted_{0};
  std::thread thread_;
};

// The reply of a server that has the region.
inline wire::HelloReply reply_to(const wire::Greeting& greeting) {
  wire::HelloReply reply = {};
  reply.region = greeting.hello.region;
  reply.region_bytes = 1 << 20;
  return proven(greeting, reply);
}

inline bool greet(int fd, wire::Greeting* greeting) {
  if (!receive_greeting(fd, greeting)) return false;
  send_bytes(fd, reply_frame(wire::Op::kProve, 1, bytes_of_value(reply_to(*greeting))));
  return true;
}
inline void greet(int fd) {
  wire::Greeting greeting;
  greet(fd, &greeting);
}

// Sends no reply; as a script by itself, it closes the connection.
inline void read_hello(int fd) {
  Request r;
  receive_request(fd, &r);
}
inline void read_proof(int fd) {
  wire::Greeting greeting;
  receive_greeting(fd, &greeting);
}

class DialServer : public testing::Test {
 protected:
  Dialer dialer_to(const Endpoint& endpoint) {
    Dialer dialer = {endpoint, {}, fds_.get()};
    dialer.hello.mode = wire::HelloMode::kAttach;
    dialer.hello.region = 42;
    dialer.key = key_for(dialer.hello);
    return dialer;
  }
  ~DialServer() override { fds_->close_all_but(-1); }
  std::unique_ptr<OwnFds> fds_ = std::make_unique<OwnFds>();
  Status status_;
};

inline constexpr RetryPolicy kShort = {400'000'000};  // less than the 25 s of real use

}  // namespace farside::transport
