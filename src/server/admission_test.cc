#include "server/admission.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>

namespace farside::server {
namespace {

// Lowers the limit on descriptors while it exists.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = {limit, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST(AdmissionTest, NewRegionsAreRefusedBeforeConnections) {
  DescriptorLimit limit(64);
  Admission admission;
  EXPECT_EQ(admission.enter_region(47, "unix"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(48, "unix"), Admission::Refusal::kDescriptors);
  EXPECT_TRUE(admission.has_room_for_regions());
  EXPECT_EQ(admission.enter(55, "unix"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter(56, "unix"), Admission::Refusal::kDescriptors);
  EXPECT_EQ(admission.refused(Admission::Refusal::kDescriptors), 2u);
  EXPECT_EQ(admission.max_pending(), 8u);
}

TEST(AdmissionTest, OneSourceTakesNoMoreThanHalf) {
  DescriptorLimit limit(64);
  Admission admission;
  for (int i = 0; i < 21; i++) EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(10, "10.0.0.1"), Admission::Refusal::kNone);
  for (int i = 0; i < 7; i++) EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(10, "10.0.0.1"), Admission::Refusal::kSource);
  EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kSource);
  for (int i = 0; i < 27; i++) EXPECT_EQ(admission.enter(10, "127.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter(10, "10.0.0.3"), Admission::Refusal::kTotal);
  for (int i = 0; i < 2; i++) admission.leave("10.0.0.1");
  EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.accepted(), 56u);
  EXPECT_EQ(admission.count(), 56u);
}

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

TEST(AdmissionTest, SourcesAreHostsOrNetworks) {
  EXPECT_EQ(source_of(address_of("10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(source_of(address_of("::ffff:10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(source_of(address_of("2001:db8:1:2:3:4:5:6")), "2001:db8:1:2::");
  EXPECT_EQ(source_of({}), "unix");
  EXPECT_EQ(peer_of(-1, address_of("::ffff:10.1.2.3")), "10.1.2.3:7");
  EXPECT_EQ(peer_of(-1, address_of("2001:db8::5")), "[2001:db8::5]:7");
}

TEST(AdmissionTest, ConnectionsOfThisMachineHaveOneAddress) {
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
