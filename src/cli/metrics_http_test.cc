#include "cli/metrics_http.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace farside::cli {
namespace {

std::string page() { return "farside_bytes 7\n"; }

TEST(MetricsTest, AnswersGetOfMetricsOnly) {
  std::string good = http_reply("GET /metrics HTTP/1.1\r\n", page);
  EXPECT_TRUE(good.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(good.ends_with("\r\n\r\nfarside_bytes 7\n"));
  EXPECT_NE(good.find("Content-Length: 16\r\n"), std::string::npos);
  EXPECT_TRUE(http_reply("GET /other HTTP/1.1", page).starts_with("HTTP/1.1 404"));
  EXPECT_TRUE(http_reply("POST /metrics HTTP/1.1", page).starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(http_reply("", page).starts_with("HTTP/1.1 405"));
  EXPECT_TRUE(http_reply("GET ", page).starts_with("HTTP/1.1 404"));
}

TEST(MetricsTest, ServesOverASocketAndStops) {
  auto endpoint = MetricsEndpoint::start("127.0.0.1:0", page);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status().text();
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons((*endpoint)->port());
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", reply;
  ASSERT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char piece[256];
  for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) reply.append(piece, static_cast<size_t>(n));
  close(fd);
  EXPECT_TRUE(reply.ends_with(page()));
  std::string taken = "127.0.0.1:" + std::to_string((*endpoint)->port());
  EXPECT_FALSE(MetricsEndpoint::start(taken, page).ok());
}

TEST(MetricsTest, AddressesAreSplitAndChecked) {
  EXPECT_EQ(parse_host_port("[::1]:80")->host, "::1");
  EXPECT_EQ(parse_host_port("10.0.0.1:80")->port, "80");
  EXPECT_TRUE(parse_host_port("127.0.0.1:80")->is_loopback());
  EXPECT_TRUE(parse_host_port("[::1]:80")->is_loopback());
  EXPECT_FALSE(parse_host_port("0.0.0.0:80")->is_loopback());
  for (const char* bad : {"", "80", ":80", "host:", "host:http", "host:99999", "host:-1"})
    EXPECT_FALSE(parse_host_port(bad).ok()) << bad;
  EXPECT_FALSE(MetricsEndpoint::start("127.0.0.1:port", page).ok());
}

}  // namespace
}  // namespace farside::cli
