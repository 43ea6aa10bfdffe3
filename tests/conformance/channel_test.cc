// The requirements of transport/transport.h: one suite, run with every kind of channel.
#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "base/clock.h"
#include "fixture.h"
#include "server/listen.h"
#include "tls/relay.h"
#include "tls/test_support.h"
#include "transport/faulty.h"
#include "transport/stream.h"
#include "ucx_relay.h"

namespace farside::testing {
namespace {

using transport::kMaxInFlight;
using transport::kMaxRanges;
using transport::kMaxRequestBytes;

enum class Kind {
  kShm,
  kSlowShm,
  kShmWithSnapshot,
  kShmCompressed,
  kTcp,
  kTcpCompressed,
  kTls,
  kUcxTcp,
  kUcxPosix,
  kUcxSysv,
  kUcxWithSnapshot,
  kUcxWithoutServer,
  kTcpSnapshot,
  kUnixSnapshot,
  kDelayedTcp,
  kDelayedShm,
  kReplicas,
  kShmReplicas,
  kSpread,
  kFile,
  kEncryptedFile,
  kFileSnapshot
};

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kShm:
      return "Shm";
    case Kind::kSlowShm:
      return "SlowShm";  // with simulated latency and bandwidth
    case Kind::kShmWithSnapshot:
      return "ShmWithSnapshot";  // writes use the stream connection
    case Kind::kShmCompressed:
      return "ShmCompressed";  // pages are cold after 4 ms
    case Kind::kTcp:
      return "Tcp";
    case Kind::kTcpCompressed:
      return "TcpCompressed";
    case Kind::kTls:
      return "Tls";  // through a relay
    case Kind::kUcxTcp:
      return "UcxTcp";  // through UCX's relay; pages that are stored are read and written one-sidedly
    case Kind::kUcxPosix:
      return "UcxPosix";
    case Kind::kUcxSysv:
      return "UcxSysv";
    case Kind::kUcxWithSnapshot:
      return "UcxWithSnapshot";  // only reads are one-sided
    case Kind::kUcxWithoutServer:
      return "UcxWithoutServer";  // through the relay, to a server without UCX
    case Kind::kTcpSnapshot:
      return "TcpSnapshot";  // as used by a forked child
    case Kind::kUnixSnapshot:
      return "UnixSnapshot";
    case Kind::kDelayedTcp:
      return "DelayedTcp";
    case Kind::kDelayedShm:
      return "DelayedShm";
    case Kind::kReplicas:
      return "Replicas";  // two over tcp
    case Kind::kShmReplicas:
      return "ShmReplicas";  // one over shm, one over tcp
    case Kind::kSpread:
      return "Spread";  // two servers, each with its own slabs
    case Kind::kFile:
      return "File";
    case Kind::kEncryptedFile:
      return "EncryptedFile";
    case Kind::kFileSnapshot:
      return "FileSnapshot";  // every slot has two references
  }
  return "";
}

// The relay of a run, in this process.
struct TestRelay {
  explicit TestRelay(const tls::Files& files) {
    int listener = *server::listen_unix(socket);
    relay = std::move(*tls::Relay::start(listener, {tls::client_context(files), ""}));
  }
  ~TestRelay() { unlink(socket.c_str()); }

  const std::string socket = unix_path();
  std::unique_ptr<tls::Relay> relay;
};

class ChannelTest : public ::testing::TestWithParam<Kind> {
 protected:
  static void SetUpTestSuite() { certificates = new tls::TestCertificates; }
  static void TearDownTestSuite() {
    delete certificates;
    certificates = nullptr;
  }
  static bool uses_tls() { return GetParam() == Kind::kTls; }
  // "": the relay of UCX is not used.
  static const char* ucx_transports() {
    switch (GetParam()) {
      case Kind::kUcxTcp:
      case Kind::kUcxWithSnapshot:
      case Kind::kUcxWithoutServer:
        return "tcp";
      case Kind::kUcxPosix:
        return "posix";
      case Kind::kUcxSysv:
        return "sysv";
      default:
        return "";
    }
  }
  static bool uses_ucx() { return *ucx_transports() != 0; }
  static bool is_one_sided() { return uses_ucx() && GetParam() != Kind::kUcxWithoutServer; }
  static ucx::Settings ucx_settings() { return {FARSIDE_UCX_HELPER, ucx_transports()}; }
  static server::ServerConfig config() {
    server::ServerConfig config = default_config();
    if (is_one_sided()) config.ucx = ucx_settings();
    if (GetParam() == Kind::kShmCompressed || GetParam() == Kind::kTcpCompressed) config.compress = Compression::kAuto;
    config.compress_epoch_ns = 1'000'000;
    if (uses_tls()) config.tls = tls::server_context(certificates->files("server"));
    return config;
  }

  void SetUp() override {
    bool shm = GetParam() == Kind::kShm || GetParam() == Kind::kSlowShm || GetParam() == Kind::kShmWithSnapshot ||
               GetParam() == Kind::kUnixSnapshot || GetParam() == Kind::kDelayedShm ||
               GetParam() == Kind::kShmReplicas || GetParam() == Kind::kShmCompressed;
    std::string address = server_.address(shm ? "shm" : "tcp");
    if (uses_tls()) {
      relay_ = std::make_unique<TestRelay>(certificates->files(""));
      address.replace(0, 3, "tls");
    }
    if (uses_ucx()) {
      ucx_relay_ = std::make_unique<UcxTestRelay>(ucx_settings(), unix_path());
      address.replace(0, 3, "ucx");
    }
    if (GetParam() == Kind::kSlowShm) address += "?latency_us=200&gbps=40";
    if (uses_file()) address = far_file(GetParam() == Kind::kEncryptedFile ? "&crypt=yes" : "");
    if (has_two_servers()) address += "," + second_server_.tcp();
    store_ = connect(
        address, server_.config().token, 2 * kSlab, replicates() ? 2 : 1, {},
        {.tls = relay_ ? relay_->socket.c_str() : nullptr, .ucx = ucx_relay_ ? ucx_relay_->socket().c_str() : nullptr});
    channel_ = open_one();
    if (is_one_sided()) wait_for_one_sided_reads(&server_, channel_.get());
  }

  std::unique_ptr<Channel> open_one() {
    switch (GetParam()) {
      case Kind::kTcpSnapshot:
      case Kind::kUnixSnapshot:
        return open_snapshot();
      case Kind::kShmWithSnapshot:
      case Kind::kUcxWithSnapshot:
      case Kind::kFileSnapshot:
        if (!ticket_.valid()) ticket_ = snapshot_of(store_.get());
        return open(store_.get());
      case Kind::kDelayedTcp:
      case Kind::kDelayedShm:
        return std::make_unique<transport::FaultyChannel>(
            open(store_.get()), transport::FaultyChannel::Plan{.seed = 5, .max_delay_polls = 50});
      default:
        return open(store_.get());
    }
  }

  // A channel to a snapshot of the store's region, over a separate connection.
  std::unique_ptr<Channel> open_snapshot() {
    if (!ticket_.valid()) ticket_ = snapshot_of(store_.get());
    dialer_.fds = &fds_;
    dialer_.hello.mode = wire::HelloMode::kAttach;
    dialer_.hello.region = ticket_.of[0].region;
    dialer_.key = wire::key_of_secret(ticket_.of[0].secret);
    if (GetParam() == Kind::kUnixSnapshot) {
      transport::set_unix_path(&dialer_.endpoint, server_.config().unix_path.data(), server_.config().unix_path.size());
    } else {
      sockaddr_in address = {AF_INET, htons(server_.port()), {htonl(INADDR_LOOPBACK)}, {}};
      memcpy(&dialer_.endpoint.address, &address, sizeof address);
      dialer_.endpoint.length = sizeof address;
    }
    Status status;
    std::unique_ptr<Channel> channel(transport::StreamChannel::open(dialer_, &status));
    if (!channel) throw std::runtime_error(status.text());
    return channel;
  }

  bool replicates() const { return GetParam() == Kind::kReplicas || GetParam() == Kind::kShmReplicas; }
  bool uses_file() const {
    return GetParam() == Kind::kFile || GetParam() == Kind::kEncryptedFile || GetParam() == Kind::kFileSnapshot;
  }
  bool has_two_servers() const { return replicates() || GetParam() == Kind::kSpread; }

  // Reads need no server; neither do writes, because a stopped server has removed the snapshots.
  bool outlives_server() const {
    return replicates() || uses_file() || GetParam() == Kind::kShm || GetParam() == Kind::kSlowShm ||
           GetParam() == Kind::kDelayedShm || GetParam() == Kind::kShmWithSnapshot ||
           GetParam() == Kind::kShmCompressed;
  }

  static tls::TestCertificates* certificates;
  TestServer server_{config()}, second_server_;
  std::unique_ptr<TestRelay> relay_;
  std::unique_ptr<UcxTestRelay> ucx_relay_;
  transport::OwnFds fds_;
  transport::Dialer dialer_;  // of a channel to a snapshot, which refers to it
  std::unique_ptr<remote::RemoteStore> store_;
  remote::ForkTicket ticket_;
  std::unique_ptr<Channel> channel_;  // destroyed before the store
};

tls::TestCertificates* ChannelTest::certificates = nullptr;

INSTANTIATE_TEST_SUITE_P(All, ChannelTest,
                         ::testing::Values(Kind::kShm, Kind::kSlowShm, Kind::kShmWithSnapshot, Kind::kShmCompressed,
                                           Kind::kTcp, Kind::kTcpCompressed, Kind::kTls, Kind::kUcxTcp, Kind::kUcxPosix,
                                           Kind::kUcxSysv, Kind::kUcxWithSnapshot, Kind::kUcxWithoutServer,
                                           Kind::kTcpSnapshot, Kind::kUnixSnapshot, Kind::kDelayedTcp,
                                           Kind::kDelayedShm, Kind::kReplicas, Kind::kShmReplicas, Kind::kSpread,
                                           Kind::kFile, Kind::kEncryptedFile, Kind::kFileSnapshot),
                         [](const auto& kind) { return name_of(kind.param); });

TEST_P(ChannelTest, OddSizesAndOffsetsAreReadBack) {
  uint64_t at = 1;
  for (size_t bytes : {1, 2, 63, 4095, 4096, 4097, 8191, 65537, 1000003, 1048576}) {
    Bytes data = pattern(bytes, bytes);
    ASSERT_EQ(write(channel_.get(), at, data), 0);
    EXPECT_EQ(read(channel_.get(), at, bytes), data);
    at += bytes + 777;
  }
}

TEST_P(ChannelTest, UnwrittenRangesReadAsZero) {
  EXPECT_EQ(read(channel_.get(), 12345, 70000), Bytes(70000));
  ASSERT_EQ(write(channel_.get(), 8192, Bytes(1, 7)), 0);
  Bytes expected(4096);
  expected[0] = 7;
  EXPECT_EQ(read(channel_.get(), 8192, 4096), expected);
  EXPECT_EQ(read(channel_.get(), kRegion - 4096, 4096), Bytes(4096));
}

TEST_P(ChannelTest, FullListsOfScatteredPages) {
  std::vector<std::pair<uint64_t, uint32_t>> ranges;
  for (uint64_t i = 0; i < kMaxRanges; i++) ranges.push_back({(i * 97 % 512) * 4096, 4096});
  Bytes data = pattern(kMaxRequestBytes, 3), back(kMaxRequestBytes);
  Token token;
  ASSERT_EQ(channel_->submit_write(byte_ranges(ranges, data.data()), -1, &token), 0);
  ASSERT_EQ(channel_->wait(token, kTestTimeoutNs), 0);
  ASSERT_EQ(channel_->submit_read(byte_ranges(ranges, back.data()), &token), 0);
  ASSERT_EQ(channel_->wait(token, kTestTimeoutNs), 0);
  EXPECT_EQ(back, data);
}

TEST_P(ChannelTest, ManyInFlightAndOneTooMany) {
  Bytes data = pattern(kMaxInFlight * 65536, 4), back(data.size());
  for (bool reading : {false, true}) {
    Token tokens[kMaxInFlight], extra;
    for (size_t i = 0; i < kMaxInFlight; i++) {
      ByteRange s = {i * 65536, 65536, (reading ? back : data).data() + i * 65536};
      ASSERT_EQ(reading ? channel_->submit_read({&s, 1}, &tokens[i]) : channel_->submit_write({&s, 1}, -1, &tokens[i]),
                0);
      EXPECT_NE(tokens[i], 0u);
    }
    ByteRange s = {0, 1, back.data()};
    EXPECT_EQ(channel_->submit_read({&s, 1}, &extra), -EAGAIN);
    for (size_t i = kMaxInFlight; i-- > 0;) EXPECT_EQ(channel_->wait(tokens[i], kTestTimeoutNs), 0);
  }
  EXPECT_EQ(back, data);
}

// Lists of one and of many ranges, gathered and not, complete in the order of submission.
TEST_P(ChannelTest, GatheredRequestsComplete) {
  constexpr uint32_t kBytes = 40 * 4096;
  Bytes data = pattern(kMaxInFlight * kBytes, 8), back(data.size());
  for (bool reading : {false, true}) {
    Token tokens[kMaxInFlight];
    for (size_t i = 0; i < kMaxInFlight; i++) {
      std::vector<std::pair<uint64_t, uint32_t>> ranges;
      uint32_t piece = i % 3 == 0 ? kBytes : 4096;
      for (uint32_t done = 0; done < kBytes; done += piece) ranges.push_back({i * kBytes + done, piece});
      auto list = byte_ranges(ranges, (reading ? back : data).data() + i * kBytes);
      channel_->gather(i % 5 != 4);
      ASSERT_EQ(reading ? channel_->submit_read(list, &tokens[i]) : channel_->submit_write(list, -1, &tokens[i]), 0);
    }
    int r;
    while ((r = channel_->poll(tokens[kMaxInFlight - 1])) == 0) os::sched_yield();
    ASSERT_EQ(r, 1);
    for (size_t i = 0; i + 1 < kMaxInFlight; i++) EXPECT_EQ(channel_->wait(tokens[i], kTestTimeoutNs), 0);
  }
  EXPECT_EQ(back, data);
}

TEST_P(ChannelTest, PollingCompletesRequests) {
  Bytes data = pattern(300000, 9), back(300000);
  ByteRange out = {5, 300000, data.data()}, in = {5, 300000, back.data()};
  Token token;
  ASSERT_EQ(channel_->submit_write({&out, 1}, -1, &token), 0);
  int r;
  while ((r = channel_->poll(token)) == 0) os::sched_yield();
  ASSERT_EQ(r, 1);
  EXPECT_EQ(channel_->poll(token), -EINVAL);  // invalid after the result
  EXPECT_EQ(channel_->wait(token, kTestTimeoutNs), -EINVAL);
  ASSERT_EQ(channel_->submit_read({&in, 1}, &token), 0);
  while ((r = channel_->poll(token)) == 0) os::sched_yield();
  EXPECT_EQ(r, 1);
  EXPECT_EQ(back, data);
}

TEST_P(ChannelTest, WritesFromAPipe) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, O_CLOEXEC), 0);
  os::fcntl(fds[1], F_SETPIPE_SZ, 1 << 20);
  for (uint32_t piece : {4096u, 37u, 1u}) {
    std::vector<std::pair<uint64_t, uint32_t>> ranges;
    for (uint64_t i = 0; i < kMaxRanges; i++) ranges.push_back({(i * 89 % 256) * 8192 + 11, piece});
    Bytes data = pattern(piece * kMaxRanges, piece), back(data.size());
    std::thread filler([&] {
      for (size_t done = 0; done < data.size();)
        done += static_cast<size_t>(os::write(fds[1], &data[done], data.size() - done));
    });
    Token token;
    ASSERT_EQ(channel_->submit_write(byte_ranges(ranges, nullptr), fds[0], &token), 0);
    filler.join();
    ASSERT_EQ(channel_->wait(token, kTestTimeoutNs), 0);
    ASSERT_EQ(channel_->submit_read(byte_ranges(ranges, back.data()), &token), 0);
    ASSERT_EQ(channel_->wait(token, kTestTimeoutNs), 0);
    EXPECT_EQ(back, data);
  }
  os::close(fds[0]);
  os::close(fds[1]);
}

TEST_P(ChannelTest, APipeThatEndsTooEarlyIsAnError) {
  int fds[2];
  ASSERT_EQ(os::pipe(fds, O_CLOEXEC), 0);
  os::write(fds[1], "abc", 3);
  os::close(fds[1]);
  ByteRange s = {0, 4, nullptr};
  Token token;
  EXPECT_EQ(channel_->submit_write({&s, 1}, fds[0], &token), -EPIPE);
  os::close(fds[0]);
  EXPECT_EQ(write(channel_.get(), 0, Bytes(4, 1)), 0);  // the channel still works
}

TEST_P(ChannelTest, DiscardedRangesReadAsZero) {
  Bytes model = pattern(40 * 4096, 8);
  ASSERT_EQ(write(channel_.get(), 0, model), 0);
  for (auto [far, bytes] : {std::pair<uint64_t, uint32_t>{4096, 4096}, {20000, 3}, {30001, 20000}, {100, 4000}}) {
    ASSERT_EQ(discard(channel_.get(), far, bytes), 0);
    std::fill_n(model.begin() + static_cast<long>(far), bytes, 0);
    ASSERT_EQ(read(channel_.get(), 0, model.size()), model);
  }
  ASSERT_EQ(discard(channel_.get(), 0, kRegion), 0);
  EXPECT_EQ(read(channel_.get(), 0, model.size()), Bytes(model.size()));
  ASSERT_EQ(write(channel_.get(), 5, Bytes(2, 1)), 0);
  EXPECT_EQ(read(channel_.get(), 4, 4), (Bytes{0, 1, 1, 0}));
}

TEST_P(ChannelTest, RequestsOverTheLimitsAreRejected) {
  Bytes buffer(kMaxRequestBytes + 1);
  Token token;
  std::vector<ByteRange> none, many(kMaxRanges + 1, ByteRange{0, 1, buffer.data()});
  EXPECT_EQ(channel_->submit_read(none, &token), -EINVAL);
  EXPECT_EQ(channel_->submit_read(many, &token), -EINVAL);
  EXPECT_EQ(channel_->submit_write(many, -1, &token), -EINVAL);
  EXPECT_EQ(channel_->submit_discard(many, &token), -EINVAL);
  ByteRange empty = {0, 0, buffer.data()}, large = {0, kMaxRequestBytes + 1, buffer.data()};
  EXPECT_EQ(channel_->submit_read({&empty, 1}, &token), -EINVAL);
  EXPECT_EQ(channel_->submit_read({&large, 1}, &token), -E2BIG);
  EXPECT_EQ(channel_->submit_write({&large, 1}, -1, &token), -E2BIG);
  EXPECT_EQ(channel_->poll(0), -EINVAL);
  EXPECT_EQ(channel_->poll(99), -EINVAL);
}

TEST_P(ChannelTest, RangesBeyondTheRegionAreRejected) {
  Bytes two(2);
  for (uint64_t far : {kRegion - 1, kRegion, kRegion + 4096, ~uint64_t{0}, ~uint64_t{0} - 1}) {
    EXPECT_EQ(read(channel_.get(), far, &two), -ERANGE);
    EXPECT_EQ(write(channel_.get(), far, two), -ERANGE);
    EXPECT_EQ(discard(channel_.get(), far, 2), -ERANGE);
  }
  EXPECT_EQ(write(channel_.get(), 0, two), 0);  // the channel still works
}

TEST_P(ChannelTest, RandomOperationsMatchAModel) {
  constexpr size_t kBytes = 512 * 1024;
  Bytes model(kBytes);
  std::mt19937_64 random(77);
  auto second = open_one();
  Channel* channels[] = {channel_.get(), second.get()};
  for (int i = 0; i < 600; i++) {
    Channel* channel = channels[random() % 2];
    uint64_t far = random() % kBytes;
    auto bytes = static_cast<uint32_t>(std::min<uint64_t>(1 + random() % 20000, kBytes - far));
    auto at = model.begin() + static_cast<long>(far);
    switch (random() % 5) {
      case 0:
        ASSERT_EQ(discard(channel, far, bytes), 0);
        std::fill_n(at, bytes, 0);
        break;
      case 1:
      case 2: {
        Bytes data = pattern(bytes, random());
        ASSERT_EQ(write(channel, far, data), 0);
        std::copy(data.begin(), data.end(), at);
        break;
      }
      default:
        ASSERT_EQ(read(channel, far, bytes), Bytes(at, at + bytes));
    }
  }
}

TEST_P(ChannelTest, StoppingTheServerFailsRequestsInFlight) {
  Bytes data = pattern(kMaxRequestBytes, 1), back(kMaxInFlight * data.size());
  ASSERT_EQ(write(channel_.get(), 0, data), 0);
  Token tokens[kMaxInFlight];
  for (size_t i = 0; i < kMaxInFlight; i++) {
    ByteRange s = {0, kMaxRequestBytes, back.data() + i * data.size()};
    ASSERT_EQ(channel_->submit_read({&s, 1}, &tokens[i]), 0);
  }
  server_->stop();
  if (!replicates()) second_server_->stop();
  int failures = 0;
  for (Token t : tokens) {
    int r = channel_->wait(t, kTestTimeoutNs);
    EXPECT_TRUE(r == 0 || r == -ECONNRESET) << r;
    failures += r != 0;
  }
  if (outlives_server()) {
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(write(channel_.get(), 4096, data), 0);
    EXPECT_EQ(read(channel_.get(), 4096, data.size()), data);
    return;
  }
  EXPECT_EQ(write(channel_.get(), 0, data), -ECONNRESET);
  EXPECT_EQ(write(channel_.get(), 0, data), -ECONNRESET);
}

// Waits for a write of a byte over shm with a simulated latency.
int write_with_latency(uint64_t latency_us, uint64_t timeout_ns) {
  TestServer server;
  auto store = connect(server.address("shm") + "?latency_us=" + std::to_string(latency_us), server.config().token);
  auto channel = open(store.get());
  uint8_t data = 1;
  ByteRange s = {0, 1, &data};
  Token token;
  if (int r = channel->submit_write({&s, 1}, -1, &token); r != 0) return r;
  return channel->wait(token, timeout_ns);
}

TEST(ShmChannel, ASimulatedLatencyPassesBeforeAReply) {
  const uint64_t start = now_ns();
  EXPECT_EQ(write_with_latency(2'000, kTestTimeoutNs), 0);
  EXPECT_GE(now_ns() - start, 1'900'000u);  // the rate of ticks is a measured one
}

TEST(ShmChannel, ALongSimulatedLatencyTimesOut) { EXPECT_EQ(write_with_latency(1'000'000, 1'000'000), -ETIMEDOUT); }

TEST(FaultyChannel, FailsAndDiesOnSchedule) {
  TestServer server;
  auto store = connect(server.tcp(), server.config().token);
  transport::FaultyChannel channel(open(store.get()), {.fail_every = 3, .die_after = 5});
  Bytes data(100, 1);
  EXPECT_EQ(write(&channel, 0, data), 0);
  EXPECT_EQ(write(&channel, 0, data), 0);
  EXPECT_EQ(write(&channel, 0, data), -EIO);
  EXPECT_EQ(write(&channel, 0, data), 0);
  ByteRange s = {0, 100, data.data()};
  Token token;
  ASSERT_EQ(channel.submit_read({&s, 1}, &token), 0);
  EXPECT_EQ(write(&channel, 0, data), -ECONNRESET);
  EXPECT_EQ(channel.wait(token, kTestTimeoutNs), -ECONNRESET);
  EXPECT_EQ(write(&channel, 0, data), -ECONNRESET);
}

}  // namespace
}  // namespace farside::testing
