#include "cli/metrics_http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <list>

namespace farside::cli {
namespace {

std::string page() { return "farside_bytes 7\n"; }
const MetricsPages kPages = {page, [] { return Status(); }};
const MetricsPages kNotReady = {page, [] { return Status::error(EBUSY, "the server leaves"); }};

class HttpClient {
 public:
  explicit HttpClient(const MetricsEndpoint& endpoint) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {AF_INET, htons(endpoint.port()), {htonl(INADDR_LOOPBACK)}, {}};
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~HttpClient() { close(fd_); }
  void send(std::string_view text) { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  bool is_open() {
    char byte;
    return recv(fd_, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }
  std::string receive() {
    std::string reply;
    char piece[256];
    for (ssize_t n; (n = read(fd_, piece, sizeof piece)) > 0;) reply.append(piece, static_cast<size_t>(n));
    return reply;
  }

 private:
  int fd_;
};
constexpr std::string_view kRequest = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST(MetricsTest, AnswersGetOfMetricsOnly) {
  std::string good = http_reply("GET /metrics HTTP/1.1\r\n", kPages);
  EXPECT_TRUE(good.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(good.ends_with("\r\n\r\nfarside_bytes 7\n"));
  EXPECT_NE(good.find("Content-Length: 16\r\n"), std::string::npos);
  EXPECT_TRUE(http_reply("GET /other HTTP/1.1", kPages).starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(http_reply("POST /metrics HTTP/1.1", kPages).starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(http_reply("", kPages).starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(http_reply("GET ", kPages).starts_with("HTTP/1.1 404"));
}

TEST(MetricsTest, HealthAndReadiness) {
  EXPECT_TRUE(http_reply("GET /healthz HTTP/1.1", kNotReady).starts_with("HTTP/1.1 200"));
  EXPECT_TRUE(http_reply("GET /readyz HTTP/1.1", kPages).starts_with("HTTP/1.1 200"));
  std::string reply = http_reply("GET /readyz HTTP/1.1", kNotReady);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 503"));
  EXPECT_TRUE(reply.ends_with("the server leaves\n"));
}

TEST(MetricsTest, ServesOverASocketAndStops) {
  auto endpoint = MetricsEndpoint::start("127.0.0.1:0", kPages);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().text();
  HttpClient client(**endpoint);
  client.send(kRequest);
  EXPECT_TRUE(client.receive().ends_with(page()));
  std::string taken = "127.0.0.1:" + std::to_string((*endpoint)->port());
  EXPECT_FALSE(MetricsEndpoint::start(taken, kPages).ok());
}

// Clients that send nothing, or one byte now and then, delay no other: none is waited for.
TEST(MetricsTest, SlowClientsDoNotDelayOthers) {
  auto endpoint = MetricsEndpoint::start("127.0.0.1:0", kPages);
  std::list<HttpClient> slow;
  for (int i = 0; i < 100; i++) slow.emplace_back(**endpoint).send("G");
  for (int i = 0; i < 3; i++) {
    slow.back().send("E");
    HttpClient client(**endpoint);
    client.send(kRequest);
    EXPECT_TRUE(client.receive().ends_with(page()));
    EXPECT_TRUE(slow.back().is_open());
  }
  EXPECT_EQ(slow.front().receive(), "");  // closed for the sake of newer ones
}

TEST(MetricsTest, ASlowClientIsClosedAtItsTimeLimit) {
  auto endpoint = MetricsEndpoint::start("127.0.0.1:0", kPages);
  HttpClient client(**endpoint);
  client.send("GET /met");
  EXPECT_EQ(client.receive(), "");
}

// A reply larger than the socket's buffers is sent piece by piece, while others are served.
TEST(MetricsTest, ALargeReplyIsSentToASlowReader) {
  std::string large(8'000'000, 'x');
  auto endpoint = MetricsEndpoint::start("127.0.0.1:0", {[&] { return large; }, kPages.ready});
  HttpClient slow(**endpoint), other(**endpoint);
  slow.send(kRequest);
  other.send("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(other.receive().ends_with("ok\n"));
  EXPECT_TRUE(slow.receive().ends_with(large));
}

TEST(MetricsTest, AddressesAreSplitAndChecked) {
  EXPECT_EQ(parse_host_port("--x", "[::1]:80")->host, "::1");
  EXPECT_EQ(parse_host_port("--x", "10.0.0.1:80")->port, "80");
  EXPECT_TRUE(parse_host_port("--x", "127.0.0.1:80")->is_loopback());
  EXPECT_TRUE(parse_host_port("--x", "[::1]:80")->is_loopback());
  EXPECT_FALSE(parse_host_port("--x", "0.0.0.0:80")->is_loopback());
  for (const char* bad : {"", "80", ":80", "host:", "host:http", "host:99999", "host:-1"})
    EXPECT_FALSE(parse_host_port("--x", bad).ok()) << bad;
  EXPECT_FALSE(MetricsEndpoint::start("127.0.0.1:port", kPages).ok());
}

}  // namespace
}  // namespace farside::cli
