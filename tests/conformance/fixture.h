// Servers and synchronous helper functions for the conformance and hostile tests.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/exposition.h"
#include "base/inject.h"
#include "base/os.h"
#include "remote/connect.h"
#include "server/server.h"
#include "transport/transport.h"

namespace farside::testing {

using Bytes = std::vector<uint8_t>;
using transport::ByteRange;
using transport::Channel;
using transport::Token;

inline constexpr uint64_t kSlab = remote::kSlabBytes;
inline constexpr uint64_t kRegion = 4 * kSlab;
inline constexpr uint64_t kTestTimeoutNs = 20'000'000'000;  // longer than any test needs: a request that hangs fails

inline std::string unix_path() {
  static int count = 0;
  return "/tmp/farside-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// The address of a far file in the folder of temporary files.
inline std::string far_file(const std::string& settings = "") { return "file:/tmp?size=128M" + settings; }

inline server::ServerConfig default_config() {
  server::ServerConfig config;
  config.memory = 64 * kSlab;
  config.listen = "127.0.0.1:0";
  config.unix_path = unix_path();
  config.token = "open sesame";
  return config;
}

// A server in this process.
class TestServer {
 public:
  explicit TestServer(server::ServerConfig config = default_config()) : config_(std::move(config)) {
    auto started = server::Server::start(config_);
    if (!started.ok()) throw std::runtime_error(started.status().text());
    server_ = std::move(*started);
    port_ = server_->tcp_port();
  }
  std::string tcp() const { return "tcp://127.0.0.1:" + std::to_string(port_); }
  std::string shm() const { return "shm://" + config_.unix_path; }
  std::string address(const std::string& transport) const {
    return transport == "shm" ? shm() : transport + "://127.0.0.1:" + std::to_string(port_);
  }
  uint16_t port() const { return port_; }
  const server::ServerConfig& config() const { return config_; }
  server::Server* operator->() { return server_.get(); }

  // Waits for the condition on the server's counters for up to 5 s, since the server processes a closed connection
  // later.
  template <typename Condition>
  ::testing::AssertionResult eventually(Condition condition) {
    for (int i = 0; i < 5000; i++) {
      if (condition(server_->stats())) return ::testing::AssertionSuccess();
      os::nanosleep_ns(1'000'000);
    }
    Exposition metrics;
    server_->append_metrics(&metrics);
    return ::testing::AssertionFailure() << metrics.take();
  }

 private:
  server::ServerConfig config_;
  std::unique_ptr<server::Server> server_;
  uint16_t port_;
};

// A server in a separate process, so that tests can fork without inheriting its sockets.
class ServerProcess {
 public:
  explicit ServerProcess(ucx::Settings ucx = {}) : config_(default_config()) {
    config_.ucx = std::move(ucx);
    int fds[2];
    if (pipe(fds) < 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) serve(fds[1]);
    close(fds[1]);
    if (::read(fds[0], &port_, sizeof port_) != sizeof port_) throw std::runtime_error("the server did not start");
    close(fds[0]);
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    unlink(config_.unix_path.c_str());
  }
  std::string address(const std::string& transport) const {
    if (transport == "shm") return "shm://" + config_.unix_path;
    return transport + "://127.0.0.1:" + std::to_string(port_);
  }
  const std::string& token() const { return config_.token; }

 private:
  [[noreturn]] void serve(int ready) {
    auto server = server::Server::start(config_);
    uint16_t port = server.ok() ? (*server)->tcp_port() : 0;
    if (!server.ok() || ::write(ready, &port, sizeof port) != sizeof port) _exit(1);
    for (;;) pause();
  }
  server::ServerConfig config_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

inline std::unique_ptr<remote::RemoteStore> connect(const std::string& address, const std::string& token,
                                                    uint64_t reserve = 2 * kSlab, unsigned replicas = 1,
                                                    transport::RetryPolicy retry = {}, remote::Relays relays = {}) {
  auto store = remote::connect_store({.address = address.c_str(),
                                      .token = token.c_str(),
                                      .region_bytes = kRegion,
                                      .replicas = replicas,
                                      .retry = retry,
                                      .relays = relays});
  if (!store.ok()) throw std::runtime_error(store.status().text());
  Status grown = reserve ? (*store)->grow(reserve) : Status();
  if (!grown.ok()) throw std::runtime_error(grown.text());
  return std::move(*store);
}

inline std::unique_ptr<Channel> open(remote::RemoteStore* store) {
  Status status;
  Channel* channel = store->open_channel(&status);
  if (!channel) throw std::runtime_error(status.text());
  return std::unique_ptr<Channel>(channel);
}

// What a fork takes. The region has had a channel: before, a fork needs no snapshot.
inline remote::ForkTicket snapshot_of(remote::RemoteStore* store) {
  open(store);
  return *store->prepare_fork();
}

// Segments over one contiguous buffer.
inline std::vector<ByteRange> byte_ranges(const std::vector<std::pair<uint64_t, uint32_t>>& ranges, void* buffer) {
  std::vector<ByteRange> out;
  auto* at = static_cast<uint8_t*>(buffer);
  for (auto [far, bytes] : ranges) {
    out.push_back({far, bytes, at});
    if (at) at += bytes;
  }
  return out;
}

inline int finish(Channel* channel, int submitted, Token token) {
  return submitted < 0 ? submitted : channel->wait(token, kTestTimeoutNs);
}
inline int read(Channel* channel, uint64_t far, Bytes* out) {
  ByteRange s = {far, static_cast<uint32_t>(out->size()), out->data()};
  Token token = 0;
  int r = channel->submit_read({&s, 1}, &token);
  return finish(channel, r, token);
}
inline int write(Channel* channel, uint64_t far, const Bytes& data) {
  ByteRange s = {far, static_cast<uint32_t>(data.size()), const_cast<uint8_t*>(data.data())};
  Token token = 0;
  int r = channel->submit_write({&s, 1}, -1, &token);
  return finish(channel, r, token);
}
inline int discard(Channel* channel, uint64_t far, uint32_t bytes) {
  ByteRange s = {far, bytes, nullptr};
  Token token = 0;
  int r = channel->submit_discard({&s, 1}, &token);
  return finish(channel, r, token);
}
inline Bytes read(Channel* channel, uint64_t far, size_t bytes) {
  Bytes out(bytes, 0xee);
  EXPECT_EQ(read(channel, far, &out), 0);
  return out;
}

// Bytes that do not compress, a word at a time: under the thread sanitizer, files of them take most of some tests.
inline Bytes pattern(size_t bytes, uint64_t seed) {
  Bytes out(bytes);
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t at = 0; at < bytes; at += sizeof x) {
    x = x * 6364136223846793005 + 1442695040888963407;
    uint64_t word = x ^ x >> 32;
    memcpy(out.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return out;
}

inline int open_fds() {
  int count = 0;
  for (int fd = 0; fd < 65536; fd++) count += os::fcntl(fd, 1 /* F_GETFD */, 0) >= 0;
  return count;
}

// A signal from one process to another: take() waits for give().
struct Turn {
  int fds[2];
  Turn() {
    if (pipe(fds) < 0) throw std::runtime_error("no pipe");
  }
  ~Turn() {
    close(fds[0]);
    close(fds[1]);
  }
  void give() { (void)!::write(fds[1], "x", 1); }
  void take() {
    char c;
    (void)!::read(fds[0], &c, 1);
  }
};

}  // namespace farside::testing
