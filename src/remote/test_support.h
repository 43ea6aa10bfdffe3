// Support for tests of stores: fake memory servers and a fake controller in this process. A test can make them full,
// have them refuse requests, or stop them.
#pragma once
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "remote/pool_store.h"
#include "transport/test_support.h"

namespace farside::remote {

inline constexpr uint64_t kTestRegion = 16 * kSlabBytes;

// Accepts connections and serves each in one thread, one request after the other.
class FakeEndpoint {
 public:
  explicit FakeEndpoint(bool tcp)
      : tcp_(tcp), socket_(::socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    static int count = 0;
    path_ = "/tmp/farside-remote-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    transport::Endpoint e;
    if (tcp) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      memcpy(&e.address, &address, sizeof address);
      e.length = sizeof address;
    } else {
      EXPECT_EQ(transport::set_unix_path(&e, path_.data(), path_.size()), 0);
    }
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&e.address), e.length), 0);
    EXPECT_EQ(::listen(socket_.get(), 64), 0);
    if (!tcp) return;
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  virtual ~FakeEndpoint() { EXPECT_FALSE(acceptor_.joinable()) << "stop() first"; }

  // "host:port" or the path.
  std::string place() const { return tcp_ ? "127.0.0.1:" + std::to_string(port_) : path_; }
  std::atomic<int> open_connections{0};
  // Closes everything; connections are refused from then on.
  void stop() {
    if (!acceptor_.joinable()) return;
    ::shutdown(socket_.get(), SHUT_RDWR);
    acceptor_.join();
    {
      std::lock_guard hold(lock_);
      for (auto& fd : connections_) ::shutdown(fd.get(), SHUT_RDWR);
    }
    for (auto& t : threads_) t.join();
    threads_.clear();
    connections_.clear();
    socket_.close();
    ::unlink(path_.c_str());
  }

 protected:
  void start() {
    acceptor_ = std::thread([this] {
      for (;;) {
        transport::Fd fd(::accept(socket_.get(), nullptr, nullptr));
        if (fd.get() < 0) return;
        add(std::move(fd));
      }
    });
  }
  virtual void greet(int fd, const wire::Greeting& greeting) {
    send(fd, transport::reply_frame(wire::Op::kProve, 1, transport::bytes_of_value(transport::proven(greeting, {}))));
  }
  virtual void answer(int fd, const transport::Request& request) = 0;
  static void reply(int fd, const transport::Request& to, const transport::FrameBytes& payload = {}) {
    send(fd, transport::reply_frame(to.op(), to.header.request, payload));
  }
  static void refuse(int fd, const transport::Request& to, int code) {
    send(fd, transport::error_frame(to.header.request, code, "refused by the test"));
  }
  static void send(int fd, const transport::FrameBytes& frame) { transport::try_send(fd, frame); }
  const bool tcp_;

 private:
  void add(transport::Fd fd) {
    std::lock_guard hold(lock_);
    int number = fd.get();
    connections_.push_back(std::move(fd));
    threads_.emplace_back([this, number] { serve(number); });
  }
  void serve(int fd) {
    wire::Greeting greeting;
    transport::Request request;
    if (transport::receive_greeting(fd, &greeting)) greet(fd, greeting);
    open_connections++;
    while (transport::receive_request(fd, &request))
      request.op() == wire::Op::kConnect ? add(std::move(request.passed)) : answer(fd, request);
    ::shutdown(fd, SHUT_RDWR);  // the client sees the end of the connection
    open_connections--;
  }
  transport::Fd socket_;
  std::string path_;
  uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex lock_;  // guards the members below
  std::vector<transport::Fd> connections_;
  std::vector<std::thread> threads_;
};

// A memory server for one client.
class FakeServer final : public FakeEndpoint {
 public:
  explicit FakeServer(uint64_t slabs, bool tcp = false)
      : FakeEndpoint(tcp), capacity_(slabs), file_(os::memfd_create("fake_server", 0)) {
    size_t bytes = kTestRegion + sizeof(wire::RegionTrailer);
    EXPECT_EQ(os::ftruncate(file_.get(), static_cast<off_t>(bytes)), 0);
    long at = os::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    memory_ = reinterpret_cast<std::byte*>(at);
    start();
  }
  ~FakeServer() override {
    stop();
    os::munmap(memory_, kTestRegion + sizeof(wire::RegionTrailer));
  }
  std::string address() const { return (tcp_ ? "tcp://" : "shm://") + place(); }
  std::byte* memory() const { return memory_; }
  bool has(uint64_t at, const transport::FrameBytes& data) {
    std::lock_guard hold(memory_lock_);
    return memcmp(memory_ + at, data.data(), data.size()) == 0;
  }

  // Tells the client, over the connection over which it asked last.
  void drain(bool on) {
    draining_ = on;
    if (asked_over_ >= 0) send(asked_over_, transport::reply_frame(wire::Op::kStats, 0, {}));
  }
  // In slabs.
  uint64_t reserved() const { return reserved_; }
  std::atomic<uint64_t> number{reinterpret_cast<uintptr_t>(this)};
  std::atomic<uint64_t> promised{0};  // reported in addition to what can be reserved
  std::atomic<int> refuse_writes{0};  // with this error
  std::atomic<int> refuse_reads{0};
  std::atomic<uint64_t> delay_of_writes_ns{0}, delay_of_reads_ns{0};
  std::atomic<int> refuse_snapshots{0};
  std::atomic<unsigned> reads{0}, writes{0}, discards{0}, snapshots{0};

 private:
  void answer(int fd, const transport::Request& request) override {
    switch (request.op()) {
      case wire::Op::kGrow:
      case wire::Op::kShrink:
        return reserve(fd, request);
      case wire::Op::kStats: {
        wire::StatsReply stats = {};
        stats.capacity_bytes = (capacity_ + promised) * kSlabBytes;
        stats.charged_bytes = reserved_ * kSlabBytes;
        stats.draining = draining_;
        asked_over_ = fd;
        return reply(fd, request, transport::bytes_of_value(stats));
      }
      default:
        return move_data(fd, request);
    }
  }
  void greet(int fd, const wire::Greeting& greeting) override {
    const wire::HelloRequest& hello = greeting.hello;
    bool snapshot = hello.mode == wire::HelloMode::kSnapshot;
    if (snapshot && refuse_snapshots) return send(fd, transport::error_frame(1, refuse_snapshots, "refused"));
    snapshots += snapshot;
    wire::HelloReply answer = {};
    answer.region = snapshot ? 2 : 1;
    answer.region_bytes = hello.region_bytes;
    answer.server = number;
    answer.memory_files = !tcp_ && hello.mode == wire::HelloMode::kCreate;
    answer = transport::proven(greeting, answer);
    auto frame = transport::reply_frame(wire::Op::kProve, 1, transport::bytes_of_value(answer));
    if (!answer.memory_files) return send(fd, frame);
    EXPECT_EQ(os::send_with_fds(fd, frame.data(), frame.size(), std::array{file_.get()}),
              static_cast<ssize_t>(frame.size()));
  }
  void reserve(int fd, const transport::Request& request) {
    wire::ReserveRequest wanted;
    ASSERT_EQ(wire::decode_reserve(request.payload, &wanted), 0);
    uint64_t slabs = wanted.bytes / kSlabBytes;
    if (request.op() == wire::Op::kShrink) {
      EXPECT_LE(slabs, reserved_);
      reserved_ -= slabs;
    } else if (reserved_ + slabs > capacity_) {
      return refuse(fd, request, ENOMEM);
    } else {
      reserved_ += slabs;
    }
    reply(fd, request, transport::bytes_of_value(wire::ReserveReply{reserved_ * kSlabBytes}));
  }
  void move_data(int fd, const transport::Request& request) {
    wire::ListRequest list;
    ASSERT_EQ(wire::decode_list(request.op(), request.payload, kTestRegion, &list), 0);
    bool read = request.op() == wire::Op::kRead, write = request.op() == wire::Op::kWrite;
    if (read && refuse_reads) return refuse(fd, request, refuse_reads);
    if (write && refuse_writes) return refuse(fd, request, refuse_writes);
    (read ? reads : write ? writes : discards)++;
    if (write && delay_of_writes_ns > 0) os::nanosleep_ns(delay_of_writes_ns);
    if (read && delay_of_reads_ns > 0) os::nanosleep_ns(delay_of_reads_ns);
    transport::FrameBytes out;
    const std::byte* from = list.data.data();
    std::unique_lock hold(memory_lock_);
    for (uint32_t i = 0; i < list.ranges.size(); i++) {
      wire::ByteRange e = list.ranges[i];
      if (read) out.insert(out.end(), memory_ + e.offset, memory_ + e.offset + e.bytes);
      else if (write) memcpy(memory_ + e.offset, from, e.bytes);
      else memset(memory_ + e.offset, 0, e.bytes);
      from += write ? e.bytes : 0;
    }
    hold.unlock();
    reply(fd, request, out);
  }

  const uint64_t capacity_;
  std::atomic<uint64_t> reserved_{0};
  std::atomic<bool> draining_{false};
  std::atomic<int> asked_over_{-1};
  transport::Fd file_;
  std::mutex memory_lock_;  // of requests over several connections
  std::byte* memory_ = nullptr;
};

// A controller with a fixed list of servers.
class FakeController final : public FakeEndpoint {
 public:
  FakeController() : FakeEndpoint(true) { start(); }
  ~FakeController() override { stop(); }
  std::string address() const { return "pool://" + place(); }
  void set(std::vector<std::pair<std::string, wire::ServerState>> servers, std::vector<std::string> zones = {}) {
    std::lock_guard hold(lock_);
    zones_ = std::move(zones);
    servers_ = std::move(servers);
  }
  std::atomic<unsigned> list_requests{0};
  std::atomic<int> refuse_lists{0};  // with this error

 private:
  void answer(int fd, const transport::Request& request) override {
    if (request.op() == wire::Op::kCopies) return reply(fd, request, {});
    ASSERT_EQ(request.op(), wire::Op::kServers);
    list_requests++;
    if (refuse_lists) return refuse(fd, request, refuse_lists);
    auto list = std::make_unique<wire::ServersReply>();
    std::lock_guard hold(lock_);
    list->count = static_cast<uint32_t>(servers_.size());
    for (size_t i = 0; i < servers_.size(); i++) {
      servers_[i].first.copy(list->servers[i].report.address, wire::kAddressBytes - 1);
      if (i < zones_.size()) zones_[i].copy(list->servers[i].report.zone, wire::kZoneBytes - 1);
      list->servers[i].state = servers_[i].second;
    }
    reply(fd, request, transport::bytes_of_value(*list));
  }
  std::mutex lock_;  // guards what follows
  std::vector<std::pair<std::string, wire::ServerState>> servers_;
  std::vector<std::string> zones_;
};

}  // namespace farside::remote
