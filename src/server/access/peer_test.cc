#include "server/access/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace farside::server {
namespace {

sockaddr_storage address_of(const char* text) {
  sockaddr_storage address = {};
  auto& six = reinterpret_cast<sockaddr_in6&>(address);
  auto& four = reinterpret_cast<sockaddr_in&>(address);
  bool is_six = inet_pton(AF_INET6, text, &six.sin6_addr) == 1;
  if (!is_six) inet_pton(AF_INET, text, &four.sin_addr);
  address.ss_family = is_six ? AF_INET6 : AF_INET;
  four.sin_port = htons(7);
  return address;
}

TEST(PeerTest, SourcesAreHostsOrNetworks) {
  EXPECT_EQ(source_of(address_of("10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(source_of(address_of("::ffff:10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(source_of(address_of("2001:db8:1:2:3:4:5:6")), "2001:db8:1:2::");
  EXPECT_EQ(source_of({}), "unix");
  EXPECT_EQ(name_of(-1, address_of("::ffff:10.1.2.3")), "10.1.2.3:7");
  EXPECT_EQ(name_of(-1, address_of("2001:db8::5")), "[2001:db8::5]:7");
}

TEST(PeerTest, ConnectionsOfThisMachineHaveOneAddress) {
  EXPECT_TRUE(is_same_machine(address_of("127.0.0.1"), address_of("127.0.0.1")));
  EXPECT_TRUE(is_same_machine(address_of("::ffff:10.1.2.3"), address_of("10.1.2.3")));
  EXPECT_FALSE(is_same_machine(address_of("10.1.2.3"), address_of("10.1.2.4")));
  EXPECT_TRUE(is_same_machine(address_of("2001:db8::5"), address_of("2001:db8::5")));
  EXPECT_FALSE(is_same_machine(address_of("2001:db8::5"), address_of("2001:db8::6")));
  EXPECT_FALSE(is_same_machine(address_of("2001:db8::5"), address_of("10.1.2.3")));
  EXPECT_TRUE(is_same_machine({}, {}));  // Unix sockets
}

}  // namespace
}  // namespace farside::server
