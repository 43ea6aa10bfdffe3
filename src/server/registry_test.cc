#include "server/registry.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

namespace farside::server {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

wire::ServerReport report_of(const std::string& address, uint64_t stored = 0, bool leaving = false) {
  wire::ServerReport report = {};
  strncpy(report.address, address.c_str(), sizeof report.address - 1);
  report.lent = 1 << 30;
  report.stored = stored;
  report.leaving = leaving;
  return report;
}

int take(MemoryRegistry& registry, const wire::ServerReport& report, uint64_t now) {
  wire::RegisterReply reply;
  return registry.report(report, now, &reply);
}

TEST(Registry, KeepsTheLastReportOfEachServer) {
  MemoryRegistry registry;
  EXPECT_TRUE(registry.servers(0).empty());
  EXPECT_EQ(take(registry, report_of("tcp://b:1", 5), 1 * kSecond), 0);
  EXPECT_EQ(take(registry, report_of("tcp://a:1", 6), 2 * kSecond), 0);
  EXPECT_EQ(take(registry, report_of("tcp://b:1", 7), 3 * kSecond), 0);
  auto servers = registry.servers(3 * kSecond);
  ASSERT_EQ(servers.size(), 2u);
  EXPECT_STREQ(servers[0].report.address, "tcp://a:1");
  EXPECT_EQ(servers[0].silent_ms, 1000u);
  EXPECT_EQ(servers[1].report.stored, 7u);
  EXPECT_EQ(servers[1].silent_ms, 0u);
}

TEST(Registry, SilentServersAreMarkedAndThenForgotten) {
  MemoryRegistry registry;
  take(registry, report_of("tcp://a:1"), kSecond);
  EXPECT_EQ(registry.servers(kSecond + Registry::kSilentAfterNs - 1)[0].state, wire::ServerState::kUp);
  EXPECT_EQ(registry.servers(kSecond + Registry::kSilentAfterNs)[0].state, wire::ServerState::kSilent);
  take(registry, report_of("tcp://a:1"), 10 * kSecond);  // it reports again
  EXPECT_EQ(registry.servers(10 * kSecond)[0].state, wire::ServerState::kUp);
  EXPECT_TRUE(registry.servers(10 * kSecond + Registry::kForgetAfterNs).empty());
}

TEST(Registry, LeavingServersAreForgottenSooner) {
  MemoryRegistry registry;
  take(registry, report_of("tcp://a:1", 0, true), kSecond);
  EXPECT_EQ(registry.servers(kSecond)[0].state, wire::ServerState::kLeaving);
  EXPECT_TRUE(registry.servers(kSecond + Registry::kLeftAfterNs).empty());
}

TEST(Registry, CopiesAreThoseOfTheClientsThatReport) {
  MemoryRegistry registry;
  EXPECT_EQ(registry.report_copies({1, 5, 2, 300}, kSecond), 0);
  EXPECT_EQ(registry.report_copies({1, 4, 3, 200}, 2 * kSecond), 0);
  EXPECT_EQ(registry.report_copies({2, 10, 0, wire::kUnknownEnd}, 2 * kSecond), 0);
  wire::PoolCopies all = registry.copies(2 * kSecond);
  EXPECT_EQ(all.clients, 2u);
  EXPECT_EQ(all.degraded, 14u);
  EXPECT_EQ(all.repaired, 3u);
  EXPECT_EQ(all.left_ms, wire::kUnknownEnd);
  EXPECT_EQ(registry.report_copies({2, 0, 10, 0}, 3 * kSecond), 0);  // complete
  all = registry.copies(3 * kSecond);
  EXPECT_EQ(all.clients, 1u);
  EXPECT_EQ(all.left_ms, 200u);
  EXPECT_EQ(registry.copies(2 * kSecond + Registry::kSilentAfterNs).clients, 0u);
}

TEST(Registry, RefusesMoreClientsThanItHasRoomFor) {
  MemoryRegistry registry;
  for (uint64_t client = 1; client <= MemoryRegistry::kMaxClients; client++)
    EXPECT_EQ(registry.report_copies({client, 1, 0, 0}, kSecond), 0);
  EXPECT_EQ(registry.report_copies({MemoryRegistry::kMaxClients + 1, 1, 0, 0}, kSecond), -ENOSPC);
  EXPECT_EQ(registry.report_copies({1, 2, 0, 0}, kSecond), 0);
}

using enum wire::Order;

class Orders : public testing::Test {
 protected:
  // A report of a server that has the given state. Returns what the reply says.
  wire::Order report(MemoryRegistry& registry, wire::Order order, bool leaving = false) {
    wire::ServerReport report = report_of("tcp://a:1", 0, leaving);
    report.order = order;
    wire::RegisterReply reply = {};
    EXPECT_EQ(registry.report(report, kSecond, &reply), 0);
    return reply.order;
  }
  wire::ServerState state(MemoryRegistry& registry, uint64_t now = kSecond) { return registry.servers(now)[0].state; }

  MemoryRegistry registry_;
};

TEST_F(Orders, AreForServersInTheList) {
  EXPECT_EQ(registry_.order("tcp://a:1", kCordon, kSecond), -ENOENT);
  EXPECT_EQ(report(registry_, kNone), kNone);
  EXPECT_EQ(registry_.order("tcp://b:1", kCordon, kSecond), -ENOENT);
  EXPECT_EQ(state(registry_), wire::ServerState::kUp);
}

TEST_F(Orders, ApplyAtOnceAndAreReplied) {
  report(registry_, kNone);
  EXPECT_EQ(registry_.order("tcp://a:1", kCordon, kSecond), 0);
  EXPECT_EQ(state(registry_), wire::ServerState::kCordoned);
  EXPECT_EQ(report(registry_, kNone), kCordon);  // the server does not know it yet, or was restarted
  EXPECT_EQ(state(registry_), wire::ServerState::kCordoned);
  EXPECT_EQ(report(registry_, kCordon), kCordon);
  EXPECT_EQ(registry_.order("tcp://a:1", kDrain, kSecond), 0);
  EXPECT_EQ(state(registry_), wire::ServerState::kDraining);
  EXPECT_EQ(report(registry_, kCordon), kDrain);
  EXPECT_EQ(registry_.order("tcp://a:1", kNone, kSecond), 0);
  EXPECT_EQ(state(registry_), wire::ServerState::kUp);
  EXPECT_EQ(report(registry_, kCordon), kNone);  // its report was sent before
  EXPECT_EQ(state(registry_), wire::ServerState::kUp);
}

TEST_F(Orders, SurviveARestartOfTheController) {
  EXPECT_EQ(report(registry_, kCordon), kCordon);
  EXPECT_EQ(state(registry_), wire::ServerState::kCordoned);
}

TEST_F(Orders, DoNotHideThatAServerLeavesOrIsSilent) {
  report(registry_, kCordon, true);
  EXPECT_EQ(state(registry_), wire::ServerState::kLeaving);
  report(registry_, kCordon);
  EXPECT_EQ(state(registry_, kSecond + Registry::kSilentAfterNs), wire::ServerState::kSilent);
}

TEST(Registry, IsBounded) {
  MemoryRegistry registry;
  for (uint32_t i = 0; i < wire::kMaxPoolServers; i++) {
    EXPECT_EQ(take(registry, report_of("tcp://a:" + std::to_string(i)), kSecond), 0);
  }
  EXPECT_EQ(take(registry, report_of("tcp://one:1"), kSecond), -ENOSPC);
  EXPECT_EQ(take(registry, report_of("tcp://a:0"), kSecond), 0);
  EXPECT_EQ(take(registry, report_of("tcp://one:1"), kSecond + Registry::kForgetAfterNs), 0);  // there is space again
}

}  // namespace
}  // namespace farside::server
