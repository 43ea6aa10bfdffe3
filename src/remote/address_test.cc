#include "remote/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/un.h>

#include <cstring>
#include <string>

namespace farside::remote {
namespace {

Status failure_of(const std::string& text) {
  Result<Address> parsed = parse_address(text.c_str());
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.status();
}

Address parsed(const std::string& text) {
  Result<Address> address = parse_address(text.c_str());
  EXPECT_TRUE(address.ok()) << text << ": " << address.status().text();
  return address.ok() ? *address : Address();
}

// "host port" as the system would dial it.
std::string place_of(const Address& a) {
  char host[INET6_ADDRSTRLEN] = {};
  if (a.endpoint.address.ss_family == AF_INET) {
    EXPECT_EQ(a.endpoint.length, sizeof(sockaddr_in));
    auto& v4 = reinterpret_cast<const sockaddr_in&>(a.endpoint.address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return std::string(host) + " " + std::to_string(ntohs(v4.sin_port));
  }
  EXPECT_EQ(a.endpoint.address.ss_family, AF_INET6);
  EXPECT_EQ(a.endpoint.length, sizeof(sockaddr_in6));
  auto& v6 = reinterpret_cast<const sockaddr_in6&>(a.endpoint.address);
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
  return std::string(host) + " " + std::to_string(ntohs(v6.sin6_port));
}

TEST(Address, NumbersNeedNoLookUp) {
  EXPECT_EQ(place_of(parsed("tcp://127.0.0.1:7170")), "127.0.0.1 7170");
  EXPECT_EQ(place_of(parsed("tcp://10.1.2.3:1")), "10.1.2.3 1");
  EXPECT_EQ(place_of(parsed("tcp://10.1.2.3:65535")), "10.1.2.3 65535");
  EXPECT_EQ(place_of(parsed("tcp://[::1]:7170")), "::1 7170");
  EXPECT_EQ(place_of(parsed("tcp://[2001:db8::5]:80")), "2001:db8::5 80");
  EXPECT_EQ(place_of(parsed("tcp://::1:7170")), "::1 7170");  // the last colon is before the port
}

TEST(Address, HostNamesAreLookedUp) {
  std::string place = place_of(parsed("tcp://localhost:99"));
  EXPECT_TRUE(place == "127.0.0.1 99" || place == "::1 99") << place;
}

TEST(Address, KeepsTheTextForMessages) {
  for (const char* text : {"tcp://127.0.0.1:7170", "shm:///run/far.sock?latency_us=4", "pool://127.0.0.1:1"}) {
    EXPECT_STREQ(parsed(text).endpoint.name, text);
  }
}

TEST(Address, KindsAreDistinguished) {
  Address tcp = parsed("tcp://127.0.0.1:7170"), shm = parsed("shm:///x"), pool = parsed("pool://127.0.0.1:7171");
  EXPECT_FALSE(tcp.is_shm() || tcp.is_pool);
  EXPECT_TRUE(shm.is_shm() && !shm.is_pool);
  EXPECT_TRUE(pool.is_pool && !pool.is_shm());
  EXPECT_EQ(place_of(pool), "127.0.0.1 7171");
}

TEST(Address, TlsIsReachedThroughARelay) {
  for (const char* text : {"tls://127.0.0.1:7170", "pool+tls://127.0.0.1:7170"}) {
    Result<Address> address = parse_address(text, {.tls = "/run/relay"});
    ASSERT_TRUE(address.ok()) << address.status().text();
    EXPECT_TRUE(address->is_tls() && !address->is_shm());
    EXPECT_EQ(address->is_pool, *text == 'p');
    EXPECT_EQ(place_of(*address), "127.0.0.1 7170");
    EXPECT_STREQ(address->endpoint.relay, "/run/relay");
    EXPECT_STREQ(address->endpoint.name, text);
    EXPECT_NE(strstr(failure_of(text).text(), "relay"), nullptr);
    EXPECT_FALSE(parse_address(text, {.tls = std::string(108, 'p').c_str()}).ok());
  }
  Result<Address> plain = parse_address("tcp://127.0.0.1:7170", {.tls = "/run/relay"});
  EXPECT_TRUE(plain.ok() && !plain->is_tls());
}

TEST(Address, UcxIsReachedThroughARelayOfItsOwn) {
  constexpr const char* kText = "ucx://10.0.0.1:7170";
  Result<Address> address = parse_address(kText, {.tls = "/run/tls", .ucx = "/run/ucx"});
  ASSERT_TRUE(address.ok()) << address.status().text();
  EXPECT_TRUE(address->is_ucx && !address->is_tls() && !address->is_shm() && !address->is_pool);
  EXPECT_EQ(place_of(*address), "10.0.0.1 7170");
  EXPECT_STREQ(address->endpoint.relay, "/run/ucx");
  EXPECT_NE(strstr(failure_of(kText).text(), "UCX needs the relay"), nullptr);
  EXPECT_EQ(check_plain_text(*address, PlainText::kRefused).code(), EACCES);
}

TEST(Address, PlainTextToOtherHostsIsRefusedWhereAsked) {
  for (const char* text : {"tcp://10.0.0.1:1", "pool://10.0.0.1:1", "tcp://[2001:db8::5]:1"}) {
    EXPECT_TRUE(check_plain_text(parsed(text), PlainText::kAllowed).ok()) << text;
    Status refused = check_plain_text(parsed(text), PlainText::kRefused);
    EXPECT_EQ(refused.code(), EACCES) << text;
    EXPECT_NE(strstr(refused.text(), text), nullptr) << refused.text();
    testing::internal::CaptureStderr();
    EXPECT_TRUE(check_plain_text(parsed(text), PlainText::kReported).ok());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("is not encrypted"), std::string::npos) << text;
  }
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://127.9.9.9:1", "tcp://[::1]:1", "shm:///x"})
    EXPECT_TRUE(check_plain_text(parsed(text), PlainText::kRefused).ok()) << text;
  Result<Address> over_tls = parse_address("tls://10.0.0.1:1", {.tls = "/run/relay"});
  EXPECT_TRUE(over_tls.ok() && check_plain_text(*over_tls, PlainText::kRefused).ok());
}

TEST(Address, PortsAreNumbersFrom1To65535) {
  for (const char* port : {"", "0", "65536", "99999999999999999999", "-1", "+1", " 1", "1 ", "7x", "0x10", "seven"}) {
    for (const char* scheme : {"tcp://", "pool://", "tls://", "pool+tls://"}) {
      std::string text = std::string(scheme) + "127.0.0.1:" + port;
      Status status = failure_of(text);
      EXPECT_EQ(status.code(), EINVAL) << text;
      EXPECT_NE(strstr(status.text(), text.c_str()), nullptr) << status.text();
    }
  }
}

TEST(Address, IncompleteAddressesAreRefused) {
  for (const char* text : {"", "tcp", "tcp:", "tcp:/", "tcp://", "tcp://host", "tcp://:7170", "tcp://:", "pool://",
                           "pool://:1", "shm://", "shm://?latency_us=1", "://", "127.0.0.1:7170", "host",
                           "udp://127.0.0.1:1", "TCP://127.0.0.1:1", " tcp://127.0.0.1:1", "/run/far.sock"}) {
    EXPECT_EQ(failure_of(text).code(), EINVAL) << text;
  }
}

TEST(Address, AListIsNoAddress) {
  // The store splits lists; an address is a single one.
  EXPECT_EQ(failure_of("tcp://127.0.0.1:1,tcp://127.0.0.1").code(), EINVAL);
  EXPECT_FALSE(parse_address("tcp://127.0.0.1:1,tcp://127.0.0.2:2").ok());
}

TEST(Address, SocketPathsMustFit) {
  auto path_of = [](const Address& a) {
    return std::string(reinterpret_cast<const sockaddr_un&>(a.endpoint.address).sun_path);
  };
  EXPECT_EQ(path_of(parsed("shm:///run/far.sock")), "/run/far.sock");
  EXPECT_EQ(path_of(parsed("shm://relative")), "relative");
  EXPECT_EQ(path_of(parsed("shm:///x?latency_us=1")), "/x");
  EXPECT_EQ(path_of(parsed("shm://" + std::string(107, 'p'))), std::string(107, 'p'));
  EXPECT_EQ(failure_of("shm://" + std::string(108, 'p')).code(), EINVAL);
}

TEST(Address, LongAddressesAreRefused) {
  constexpr size_t kRoom = sizeof(transport::Endpoint::name);
  std::string text = "tcp://127.0.0.1:";
  text += std::string(kRoom - text.size(), '1');
  EXPECT_EQ(failure_of(text).code(), EINVAL);
  EXPECT_NE(strstr(failure_of(text).text(), "longer"), nullptr);
  text.pop_back();  // fits now, and the port is none
  EXPECT_EQ(failure_of(text).code(), EINVAL);
  EXPECT_EQ(strstr(failure_of(text).text(), "longer"), nullptr);
}

TEST(Address, ShmTakesSettingsOfTheLink) {
  Address a = parsed("shm:///x?latency_us=4.5&gbps=10");
  EXPECT_EQ(a.link.latency_us, 4.5);
  EXPECT_EQ(a.link.gbps, 10);
  a = parsed("shm:///x?gbps=0.5");
  EXPECT_EQ(a.link.latency_us, 0);
  EXPECT_EQ(a.link.gbps, 0.5);
  a = parsed("shm:///x?latency_us=1e6");
  EXPECT_EQ(a.link.latency_us, 1e6);
  EXPECT_EQ(parsed("shm:///x?").link.gbps, 0);
  for (const char* query : {"latency=1", "latency_us", "latency_us=", "latency_us=-1", "latency_us=1us", "gbps=nan",
                            "gbps=inf", "latency_us=1000001", "gbps=1&x=2", "gbps=1&&latency_us=1", "=1", "gbps=1,2"}) {
    EXPECT_EQ(failure_of(std::string("shm:///x?") + query).code(), EINVAL) << query;
  }
}

TEST(Address, HostNamesMayBeRefused) {
  EXPECT_EQ(parse_address("tcp://localhost:7170", {}, HostNames::kRefused).status().code(), EHOSTUNREACH);
  EXPECT_TRUE(parse_address("tcp://127.0.0.1:7170", {}, HostNames::kRefused).ok());
  EXPECT_TRUE(parse_address("tcp://[::1]:7170", {}, HostNames::kRefused).ok());
}

}  // namespace
}  // namespace farside::remote
