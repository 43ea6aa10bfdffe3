// The store: reservations, isolation of clients, error messages, slow peers.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "fixture.h"
#include "remote/connect.h"

namespace farside::testing {
namespace {

using remote::connect_store;
using remote::RemoteStore;

class StoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string address() const { return server_.address(GetParam()); }
  std::unique_ptr<RemoteStore> connect_one(uint64_t reserve = 2 * kSlab) {
    return connect(address(), server_.config().token, reserve);
  }
  TestServer server_;
};
INSTANTIATE_TEST_SUITE_P(All, StoreTest, ::testing::Values("tcp", "shm"), [](const auto& kind) { return kind.param; });

TEST_P(StoreTest, ClientsAreIsolated) {
  auto a = connect_one(), b = connect_one();
  auto x = open(a.get()), y = open(b.get());
  Bytes ours = pattern(100000, 1), theirs = pattern(100000, 2);
  ASSERT_EQ(write(x.get(), 0, ours), 0);
  EXPECT_EQ(read(y.get(), 0, ours.size()), Bytes(ours.size()));
  ASSERT_EQ(write(y.get(), 0, theirs), 0);
  EXPECT_EQ(read(x.get(), 0, ours.size()), ours);
}

TEST_P(StoreTest, MemoryOfAClosedClientIsZeroForTheNext) {
  for (int i = 0; i < 10; i++) {
    auto store = connect_one();
    auto channel = open(store.get());
    ASSERT_EQ(read(channel.get(), 0, kSlab / 32), Bytes(kSlab / 32));
    ASSERT_EQ(write(channel.get(), 0, Bytes(kSlab / 32, 0xab)), 0);
  }
  EXPECT_TRUE(server_.eventually([](auto s) { return s.clients == 0 && s.regions == 0 && s.reserved_bytes == 0; }));
}

TEST_P(StoreTest, ChannelsOfOneStoreShareItsRegion) {
  auto store = connect_one();
  auto x = open(store.get()), y = open(store.get());
  Bytes data = pattern(5000, 3);
  ASSERT_EQ(write(x.get(), 77, data), 0);
  EXPECT_EQ(read(y.get(), 77, 5000), data);
}

TEST_P(StoreTest, ReservationsGrowAndShrinkWithinTheServersMemory) {
  auto a = connect_one(4 * kSlab);
  std::vector<std::unique_ptr<RemoteStore>> others;
  for (int i = 0; i < 15; i++) others.push_back(connect_one(4 * kSlab));  // 64 slabs are taken
  auto last = connect_one(0);
  Status full = last->grow(kSlab);
  EXPECT_EQ(full.code(), ENOMEM);
  EXPECT_TRUE(strstr(full.text(), "full")) << full.text();
  a->shrink(kSlab);
  EXPECT_TRUE(last->grow(kSlab).ok());
  EXPECT_EQ(server_->stats().reserved_bytes, 64 * kSlab);
}

TEST_P(StoreTest, ADeferredStoreConnectsWhenItIsNeeded) {
  std::string where = address();
  remote::StoreConfig config = {where.c_str(), server_.config().token.c_str(), 64 * kSlab};
  config.deferred = true;
  auto store = std::move(*connect_store(config)), late = std::move(*connect_store(config));
  EXPECT_TRUE(store->grow(kSlab).ok());
  EXPECT_TRUE(late->grow(kSlab).ok());
  EXPECT_EQ(server_->stats().regions, 0u);
  EXPECT_TRUE(store->grow(63 * kSlab).ok());  // the first one as well
  EXPECT_EQ(server_->stats().reserved_bytes, 64 * kSlab);
  EXPECT_EQ(late->grow(kSlab).code(), ENOMEM);
  EXPECT_EQ(server_->stats().reserved_bytes, 64 * kSlab);
  Status status;
  EXPECT_EQ(late->open_channel(&status), nullptr);
  EXPECT_EQ(status.code(), ENOMEM) << status.text();
  store->shrink(2 * kSlab);
  auto channel = open(late.get());
  EXPECT_EQ(write(channel.get(), 0, Bytes(10, 1)), 0);
  EXPECT_EQ(server_->stats().reserved_bytes / kSlab, 63u);
  late->shrink(kSlab);
  EXPECT_EQ(server_->stats().reserved_bytes / kSlab, 62u);
}

TEST_P(StoreTest, DescriptorsBelongToTheStoreAndAreAllClosed) {
  auto idle = [](auto s) { return s.clients == 0; };
  connect_one();
  ASSERT_TRUE(server_.eventually(idle));
  int before = open_fds();
  {
    auto store = connect_one();
    auto channel = open(store.get());
    EXPECT_FALSE(store->owns_fd(-1));
    EXPECT_FALSE(store->owns_fd(0));
    int owned = 0;
    for (int fd = 0; fd < 65536; fd++) owned += store->owns_fd(fd);
    EXPECT_EQ(owned, 2);  // tcp: control and channel; shm: control and memory
  }
  EXPECT_TRUE(server_.eventually(idle));
  EXPECT_EQ(open_fds(), before);
}

TEST_P(StoreTest, AWrongTokenIsRejected) {
  auto store = connect_store({address().c_str(), "open barley", kRegion});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), EACCES);
  EXPECT_TRUE(strstr(store.status().text(), "token")) << store.status().text();
  EXPECT_EQ(server_->stats().refused_tokens, 1u);
  EXPECT_FALSE(connect_store({address().c_str(), nullptr, kRegion}).ok());
  connect_one();
}

TEST_P(StoreTest, AStoppedServerIsReported) {
  auto store = connect_one();
  auto channel = open(store.get());
  server_->stop();
  EXPECT_EQ(store->grow(kSlab).code(), ECONNRESET);
  EXPECT_EQ(store->grow(kSlab).code(), ECONNRESET);
  EXPECT_FALSE(store->prepare_fork().ok());
  store->shrink(kSlab);
  auto again = connect_store({address().c_str(), "", kRegion});
  ASSERT_FALSE(again.ok());
  EXPECT_TRUE(strstr(again.status().text(), "cannot reach memory server")) << again.status().text();
  EXPECT_TRUE(strstr(again.status().text(), "farside serve")) << again.status().text();
}

TEST_P(StoreTest, ManyThreadsAtOnce) {
  auto store = connect_one();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 8; t++) {
    threads.emplace_back([&, t] {
      auto channel = open(store.get());
      for (uint64_t i = 0; i < 50; i++) {
        Bytes data = pattern(9000, t * 1000 + i);
        wrong += write(channel.get(), t * 100000 + i * 7, data) != 0;
        wrong += read(channel.get(), t * 100000 + i * 7, 9000) != data;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Store, QuotaPerClient) {
  auto config = default_config();
  config.quota = 2 * kSlab;
  TestServer server(config);
  auto a = connect(server.tcp(), config.token), b = connect(server.tcp(), config.token);
  Status refused = a->grow(kSlab);
  EXPECT_EQ(refused.code(), ENOMEM);
  EXPECT_TRUE(strstr(refused.text(), "quota")) << refused.text();
}

constexpr char kBuilder[] = "the secret of a builder", kWatcher[] = "the secret of a watcher";

std::vector<server::TokenEntry> two_tokens(unsigned builder) {
  return {{"builder", kBuilder, builder, 3 * kSlab}, {"watcher", kWatcher, server::kMaySeeCounts, 0}};
}

TEST(Store, EachTokenHasItsOperationsAndQuota) {
  auto config = default_config();
  config.tokens = two_tokens(server::kMayCreate);
  TestServer server(config);
  EXPECT_EQ(connect_store({server.tcp().c_str(), config.token.c_str(), kRegion}).status().code(), EACCES);
  Status watching = connect_store({server.tcp().c_str(), kWatcher, kRegion}).status();
  EXPECT_EQ(watching.code(), EPERM);
  EXPECT_TRUE(strstr(watching.text(), "watcher")) << watching.text();
  auto store = connect(server.tcp(), kBuilder), second = connect(server.tcp(), kBuilder, 0);
  Status beyond = second->grow(2 * kSlab);  // of both together
  EXPECT_EQ(beyond.code(), ENOMEM);
  EXPECT_TRUE(strstr(beyond.text(), "token builder")) << beyond.text();
  EXPECT_TRUE(second->grow(kSlab).ok());
  auto channel = open(store.get());
  EXPECT_EQ(store->prepare_fork().status().code(), EPERM);
}

TEST(Store, NewTokensApplyAtOnce) {
  auto config = default_config();
  config.tokens = two_tokens(server::kMayCreate | server::kMayFork);
  TestServer server(config);
  auto store = connect(server.tcp(), kBuilder);
  auto channel = open(store.get());
  store->forked_in_parent(*store->prepare_fork());
  server->set_tokens({{"watcher", "another secret of a watcher", server::kClientOperations, 0}});
  EXPECT_EQ(connect_store({server.tcp().c_str(), kBuilder, kRegion}).status().code(), EACCES);
  EXPECT_EQ(connect_store({server.tcp().c_str(), kWatcher, kRegion}).status().code(), EACCES);
  connect(server.tcp(), "another secret of a watcher");
  EXPECT_EQ(store->prepare_fork().status().code(), EPERM);
  auto more = open(store.get());  // programs that run keep their memory
  EXPECT_EQ(write(more.get(), 0, Bytes(10, 1)), 0);
  EXPECT_EQ(read(channel.get(), 0, 10), Bytes(10, 1));
}

TEST(Store, WritesBeyondTheReservationAreRejected) {
  TestServer server;
  auto store = connect(server.tcp(), server.config().token, 0);
  auto channel = open(store.get());
  EXPECT_EQ(write(channel.get(), 0, Bytes(1, 1)), -ENOSPC);
  ASSERT_TRUE(store->grow(kSlab).ok());
  EXPECT_EQ(write(channel.get(), 0, Bytes(1, 1)), 0);
}

TEST(Store, SeveralWorkersServeOneRegion) {
  auto config = default_config();
  config.workers = 3;
  TestServer server(config);
  auto store = connect(server.tcp(), config.token);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  auto ticket = *store->prepare_fork();
  for (uint64_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      auto channel = open(store.get());
      for (uint64_t i = 0; i < 100; i++) {
        Bytes data = pattern(5000, t * 1000 + i);
        wrong += write(channel.get(), t * 100000, data) != 0;
        wrong += read(channel.get(), t * 100000, 5000) != data;
      }
    });
  }
  for (int i = 0; i < 20; i++) store->forked_in_parent(*store->prepare_fork());
  for (auto& t : threads) t.join();
  store->forked_in_parent(ticket);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(server.eventually([](auto s) { return s.snapshots == 0 && s.regions == 1; }));
}

TEST(Store, AddressesAreChecked) {
  for (const char* bad :
       {"", "tcp://", "tcp://host", "tcp://:7170", "tcp://host:", "tcp://host:0", "tcp://host:70000", "tcp://host:7x",
        "udp://h:1", "shm://", "shm:///x?latency=1", "shm:///x?gbps=fast", "shm:///x?latency_us=-1"}) {
    auto store = connect_store({bad, "", kRegion});
    ASSERT_FALSE(store.ok()) << bad;
    EXPECT_EQ(store.status().code(), EINVAL) << bad << ": " << store.status().text();
  }
  std::string path(200, 'x');
  EXPECT_FALSE(connect_store({("shm://" + path).c_str(), "", kRegion}).ok());
}

TEST(Store, HostNamesAreResolved) {
  TestServer server;
  auto store = connect("tcp://localhost:" + std::to_string(server.port()), server.config().token);
  auto channel = open(store.get());
  EXPECT_EQ(write(channel.get(), 0, Bytes(10, 1)), 0);
}

TEST(Server, RejectsInvalidConfigurations) {
  auto code = [](auto change) {
    auto config = default_config();
    change(config);
    auto server = server::Server::start(config);
    return server.ok() ? 0 : server.status().code();
  };
  EXPECT_EQ(code([](auto&) {}), 0);
  EXPECT_EQ(code([](auto& c) { c.memory = 0; }), EINVAL);
  EXPECT_EQ(code([](auto& c) { c.listen = c.unix_path = ""; }), EINVAL);
  EXPECT_EQ(code([](auto& c) { c.token = std::string(129, 'x'); }), EINVAL);
  EXPECT_EQ(code([](auto& c) { c.workers = 0; }), EINVAL);
  EXPECT_EQ(code([](auto& c) { c.listen = "7170"; }), EINVAL);
  EXPECT_EQ(code([](auto& c) { c.unix_path = "/dev/null"; }), EEXIST);
  TestServer running;
  EXPECT_EQ(code([&](auto& c) { c.unix_path = running.config().unix_path; }), EADDRINUSE);
  EXPECT_EQ(code([&](auto& c) { c.listen = "127.0.0.1:" + std::to_string(running.port()); }), EADDRINUSE);
}

TEST(Server, ReplacesAStaleSocket) {
  auto config = default_config();
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {AF_UNIX, {}};
  strcpy(address.sun_path, config.unix_path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  TestServer server(config);
  connect(server.shm(), config.token);
}

// Forwards data between clients and the server in pieces of at most 97 bytes.
class TricklingProxy {
 public:
  explicit TricklingProxy(uint16_t server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t length = sizeof address;
    bind(listener_, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~TricklingProxy() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (int fd : fds_) shutdown(fd, SHUT_RDWR);
    for (auto& t : pumps_) t.join();
    for (int fd : fds_) close(fd);
    close(listener_);
  }
  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

 private:
  static sockaddr_in loopback(uint16_t port) { return {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {}}; }
  void accept_all() {
    for (;;) {
      int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address = loopback(server_port_);
      if (::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) return;
      fds_.insert(fds_.end(), {client, server});
      pumps_.emplace_back([=] { pump(client, server); });
      pumps_.emplace_back([=] { pump(server, client); });
    }
  }
  static void pump(int from, int to) {
    char bytes[97];
    for (uint64_t round = 0;; round++) {
      ssize_t n = recv(from, bytes, 1 + round * 31 % sizeof bytes, 0);
      if (n <= 0 || send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) break;
      if (round % 16 == 0) os::nanosleep_ns(20'000);
    }
    shutdown(to, SHUT_WR);
  }
  uint16_t server_port_, port_;
  int listener_;
  std::thread acceptor_;
  std::vector<int> fds_;
  std::vector<std::thread> pumps_;
};

TEST(SlowPeer, RequestsCompleteOverASlowConnection) {
  TestServer server;
  TricklingProxy proxy(server.port());
  auto store = connect(proxy.address(), server.config().token);
  auto channel = open(store.get());
  Bytes data = pattern(100000, 6), back(data.size());
  ASSERT_EQ(write(channel.get(), 4000, data), 0);
  Token tokens[4];
  for (size_t i = 0; i < 4; i++) {
    ByteRange s = {4000 + i * 25000, 25000, &back[i * 25000]};
    ASSERT_EQ(channel->submit_read({&s, 1}, &tokens[i]), 0);
  }
  EXPECT_EQ(channel->wait(tokens[3], 0), -ETIMEDOUT);  // still in flight
  for (Token t : tokens) ASSERT_EQ(channel->wait(t, kTestTimeoutNs), 0);
  EXPECT_EQ(back, data);
}

// A client that requests much data and receives none must not stall another one.
TEST(SlowPeer, DoesNotStallOtherClients) {
  TestServer server;
  auto greedy_store = connect(server.tcp(), server.config().token);
  auto store = connect(server.tcp(), server.config().token);
  auto greedy = open(greedy_store.get()), channel = open(store.get());
  Bytes sink(1 << 20);
  Token tokens[transport::kMaxInFlight];
  ByteRange s = {0, 1 << 20, sink.data()};
  for (Token& t : tokens) ASSERT_EQ(greedy->submit_read({&s, 1}, &t), 0);  // not polled meanwhile
  Bytes data = pattern(100000, 2);
  for (int i = 0; i < 20; i++) {
    ASSERT_EQ(write(channel.get(), 0, data), 0);
    ASSERT_EQ(read(channel.get(), 0, data.size()), data);
  }
  for (Token t : tokens) ASSERT_EQ(greedy->wait(t, kTestTimeoutNs), 0);  // and now receives all of it
}

}  // namespace
}  // namespace farside::testing
