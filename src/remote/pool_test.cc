// Tests of a store of several servers. tests/conformance tests it with real servers.
#include <algorithm>
#include <bit>

#include "remote/pool_fixture.h"

namespace farside::remote {
namespace {

// ---- Lists of servers ----

TEST_F(Pool, ListsAreChecked) {
  serve({4, 4});
  std::string a = servers_[0]->address(), b = servers_[1]->address();
  EXPECT_EQ(try_connect(a + "," + a).code(), EINVAL);
  EXPECT_EQ(try_connect(a + ",," + b).code(), EINVAL);
  EXPECT_EQ(try_connect("," + a).code(), EINVAL);
  EXPECT_EQ(try_connect(a + ",pool://127.0.0.1:1").code(), EINVAL);
  EXPECT_EQ(try_connect(a + "," + std::string(300, 'x')).code(), EINVAL);
  EXPECT_EQ(try_connect(a + "," + std::string(1100, 'x')).code(), EINVAL);
  EXPECT_EQ(try_connect(a + "," + b, 3).code(), EINVAL);  // three copies on two servers
  EXPECT_EQ(try_connect(a + "," + b).code(), 0);
  EXPECT_STREQ(store_->address(), (a + "," + b).c_str());
  EXPECT_STREQ(store_->transport_name(), "pool");
}

TEST_F(Pool, OneServerAtTwoAddressesIsRefused) {
  serve({4, 4, 4});
  servers_[2]->number = servers_[0]->number.load();
  for (unsigned replicas : {1, 2}) {
    Status same = try_connect(list_, replicas);
    EXPECT_EQ(same.code(), EINVAL);
    std::string both = servers_[0]->address() + " and " + servers_[2]->address() + " are one memory server";
    EXPECT_NE(std::string(same.text()).find(both), std::string::npos) << same.text();
  }
  // A process that starts while servers may be missing uses it once.
  ASSERT_TRUE(try_connect(list_, 2, false).ok());
  EXPECT_EQ(store_->servers().count(), 2u);
  servers_[2]->number = 1;  // it was started again
  ASSERT_TRUE(try_connect(list_, 2).ok());
  EXPECT_EQ(store_->servers().count(), 3u);
}

TEST_F(Pool, SixteenServersAreTheMost) {
  serve(std::vector<uint64_t>(kMaxServers + 1, 1));
  Status more = try_connect(list_);
  EXPECT_EQ(more.code(), EINVAL);
  EXPECT_NE(strstr(more.text(), "16"), nullptr) << more.text();
  EXPECT_TRUE(try_connect(list_.substr(0, list_.rfind(','))).ok());
}

TEST_F(Pool, ATokenThatIsTooLongIsRefused) {
  serve({1, 1});
  std::string token(wire::kMaxToken + 1, 't');
  EXPECT_EQ(PoolStore::connect({list_.c_str(), token.c_str(), kTestRegion}).status().code(), EINVAL);
}

TEST_F(Pool, WithReplicasAServerMayBeMissing) {
  serve({4, 4});
  std::string list = list_ + ",shm:///nonexistent/socket";
  EXPECT_EQ(try_connect(list, 2, true).code(), ENOENT);
  EXPECT_EQ(try_connect(list, 1, false).code(), ENOENT);  // without copies every server is needed
  ASSERT_TRUE(try_connect(list, 2, false).ok());
  EXPECT_TRUE(store_->grow(4 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{4, 4}));
}

// ---- Reserving ----

TEST_F(Pool, SlabsAreReservedWhereThereIsMostRoom) {
  serve({10, 4, 6});
  connect();
  ASSERT_TRUE(store_->grow(11 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{7, 1, 3}));  // three are left on each
  ASSERT_TRUE(store_->grow(9 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{10, 4, 6}));
  EXPECT_EQ(store_->grow(kSlabBytes).code(), ENOMEM);
}

TEST_F(Pool, MoreThanThereIsReservesNothing) {
  serve({3, 3});
  connect();
  EXPECT_EQ(store_->grow(7 * kSlabBytes).code(), ENOMEM);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 0}));
  EXPECT_TRUE(store_->grow(6 * kSlabBytes).ok());
}

TEST_F(Pool, EveryCopyNeedsADifferentServer) {
  serve({10, 2, 3});
  connect(2);
  EXPECT_EQ(store_->grow(6 * kSlabBytes).code(), ENOMEM);  // room for 15, but only 5 pairs
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 0, 0}));
  ASSERT_TRUE(store_->grow(5 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{5, 2, 3}));
}

TEST_F(Pool, AServerThatRefusesItsPromiseIsSkipped) {
  serve({4, 1, 4});
  servers_[1]->promised = 100;  // as if other clients had reserved it
  connect();
  ASSERT_TRUE(store_->grow(5 * kSlabBytes).ok());
  EXPECT_EQ(servers_[1]->reserved(), 0u);
  EXPECT_EQ(servers_[0]->reserved() + servers_[2]->reserved(), 5u);  // a failed round returns what it reserved
  EXPECT_EQ(store_->servers().lost(), 0u);                           // it is only full
}

TEST_F(Pool, ARoundThatOneServerRefusesIsUndoneOnTheOthers) {
  serve({4, 1, 4});
  servers_[1]->promised = 3;
  connect();
  EXPECT_EQ(store_->grow(9 * kSlabBytes).code(), ENOMEM);  // three each, but the second has one
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 0, 0}));
  EXPECT_TRUE(store_->grow(8 * kSlabBytes).ok());
}

TEST_F(Pool, WhenAllRefuseNothingStaysReserved) {
  serve({2, 2, 2});
  for (auto& server : servers_) server->promised = 100;
  connect();
  EXPECT_EQ(store_->grow(9 * kSlabBytes).code(), ENOMEM);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 0, 0}));
}

TEST_F(Pool, AServerThatEndedIsSkipped) {
  serve({4, 4, 4});
  connect();
  servers_[0]->stop();
  ASSERT_TRUE(store_->grow(6 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 3, 3}));
  EXPECT_EQ(store_->servers().lost(), only(0));
  for (auto& server : servers_) server->stop();
  EXPECT_FALSE(store_->grow(kSlabBytes).ok());
  EXPECT_EQ(store_->servers().lost(), only(0) | only(1) | only(2));
  Status status;
  std::unique_ptr<Channel> channel(store_->open_channel(&status));
  EXPECT_FALSE(channel);
  EXPECT_EQ(status.code(), ECONNRESET);
}

TEST_F(Pool, ShrinkingReturnsTheUnusedReserve) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->grow(10 * kSlabBytes).ok());
  ASSERT_TRUE(store_->claim(0, 4 * kSlabBytes).ok());
  store_->shrink(4 * kSlabBytes);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{3, 3}));
  store_->shrink(4 * kSlabBytes);  // only two are unused
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{2, 2}));
}

// ---- Placing ----

TEST_F(Pool, ASlabIsPlacedWithItsFirstByteAndReleasedWithItsLast) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->grow(4 * kSlabBytes).ok());
  EXPECT_EQ(holders(3), (std::vector<ServerSet>{0, 0, 0}));
  ASSERT_TRUE(store_->claim(kSlabBytes - 4096, 8192).ok());  // over a border
  EXPECT_NE(store_->servers().holders(0), 0u);
  EXPECT_NE(store_->servers().holders(1), 0u);
  EXPECT_NE(store_->servers().holders(0), store_->servers().holders(1));  // by turns
  EXPECT_EQ(store_->servers().holders(2), 0u);
  ServerSet first = store_->servers().holders(0);
  ASSERT_TRUE(store_->claim(0, 4096).ok());
  EXPECT_EQ(store_->servers().holders(0), first);
  store_->unclaim(kSlabBytes - 4096, 8192);
  EXPECT_EQ(store_->servers().holders(0), first);
  EXPECT_EQ(store_->servers().holders(1), 0u);
  store_->unclaim(0, 4096);
  EXPECT_EQ(store_->servers().holders(0), 0u);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{2, 2}));  // the reserve is kept
  ASSERT_TRUE(store_->claim(4 * kSlabBytes, 4 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{2, 2}));  // and used again
}

TEST_F(Pool, AClaimWithoutReserveReservesAFewMore) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, 4096).ok());
  EXPECT_EQ(servers_[0]->reserved() + servers_[1]->reserved(), 4u);
}

TEST_F(Pool, AClaimTakesTheLastSlab) {
  serve({1, 1});
  connect();
  EXPECT_TRUE(store_->claim(0, 4096).ok());  // four ahead are too many
  EXPECT_TRUE(store_->claim(5 * kSlabBytes, 4096).ok());
  EXPECT_EQ(store_->claim(9 * kSlabBytes, 4096).code(), ENOMEM);
}

TEST_F(Pool, AClaimThatFailsClaimsNothing) {
  serve({1, 1});
  connect();
  ASSERT_TRUE(store_->claim(kSlabBytes, 4096).ok());
  EXPECT_EQ(store_->claim(0, 3 * kSlabBytes).code(), ENOMEM);  // needs two more, and there is one
  EXPECT_EQ(store_->servers().holders(0), 0u);
  EXPECT_NE(store_->servers().holders(1), 0u);  // it was claimed before
  EXPECT_EQ(store_->servers().holders(2), 0u);
  EXPECT_TRUE(store_->claim(2 * kSlabBytes, kSlabBytes).ok());  // the one is free
  store_->unclaim(kSlabBytes, 4096);
  EXPECT_EQ(store_->servers().holders(1), 0u);  // the failed claim was undone
}

TEST_F(Pool, CopiesAreOnDifferentServers) {
  serve({8, 8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, 9 * kSlabBytes).ok());
  unsigned slabs[3] = {};
  for (ServerSet h : holders(9)) {
    EXPECT_EQ(std::popcount(h), 2);
    for (unsigned s = 0; s < 3; s++) slabs[s] += (h & only(s)) != 0;
  }
  for (unsigned count : slabs) EXPECT_EQ(count, 6u);
}

TEST_F(Pool, AfterALossThereAreFewerCopies) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  store_->servers().lose(1, "the test says so");
  ASSERT_TRUE(store_->claim(8 * kSlabBytes, kSlabBytes).ok());
  EXPECT_EQ(store_->servers().holders(0), only(0) | only(1));
  EXPECT_EQ(store_->servers().holders(8), only(0));
}

TEST_F(Pool, UnclaimedSlabsArePlacedOnTheReserveOnly) {
  serve({8, 8});
  connect();
  EXPECT_EQ(store_->placement().place_unclaimed(3), 0u);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 0}));
  ASSERT_TRUE(store_->grow(kSlabBytes).ok());
  ServerSet placed = store_->placement().place_unclaimed(3);
  EXPECT_EQ(std::popcount(placed), 1);
  EXPECT_EQ(store_->placement().place_unclaimed(3), placed);  // and stays
  EXPECT_EQ(store_->servers().holders(3), placed);
  EXPECT_EQ(store_->placement().place_unclaimed(4), 0u);  // the reserve is used up
}

TEST_F(Pool, ReadersTakeTurnsAmongCopies) {
  serve({8, 8, 8}, true);
  connect(3);
  ServerSet all = only(0) | only(1) | only(2);
  for (uint64_t slab = 0; slab < 6; slab++) EXPECT_EQ(store_->servers().reader_of(slab, all), slab % 3) << slab;
  EXPECT_EQ(store_->servers().reader_of(0, only(1) | only(2)), 1u);
  EXPECT_EQ(store_->servers().reader_of(1, only(1) | only(2)), 2u);
  for (uint64_t slab = 0; slab < 6; slab++) EXPECT_EQ(store_->servers().reader_of(slab, only(2)), 2u);
}

TEST_F(Pool, AMappedCopyIsReadFirst) {
  serve({8, 8}, true);
  serve({8}, false);
  list_.clear();
  for (auto& server : servers_) list_ += (list_.empty() ? "" : ",") + server->address();
  connect(3);
  for (uint64_t slab = 0; slab < 6; slab++)
    EXPECT_EQ(store_->servers().reader_of(slab, only(0) | only(1) | only(2)), 2u);
  EXPECT_EQ(store_->servers().reader_of(0, only(0) | only(1)), 0u);
}

TEST_F(Pool, AllOfItIsReadInPlaceWhereAMappedServerHasEverything) {
  serve({16, 16});
  connect(2);
  servers_[0]->memory()[7] = std::byte{42};
  transport::Mapping mapping = store_->servers().mapping();
  EXPECT_TRUE(mapping.immediate);
  ASSERT_NE(mapping.base, nullptr);
  EXPECT_EQ(mapping.base[7], std::byte{42});
  servers_[1]->memory()[7] = std::byte{43};
  store_->servers().lose(0, "the test says so");
  mapping = store_->servers().mapping();
  ASSERT_NE(mapping.base, nullptr);
  EXPECT_EQ(mapping.base[7], std::byte{43});
}

TEST_F(Pool, NotInPlaceWhereServersHaveDifferentSlabs) {
  serve({16, 16, 16});
  connect(2);
  EXPECT_EQ(store_->servers().mapping().base, nullptr);
}

TEST_F(Pool, DescriptorsOfAllServersAreOwnedAndClosed) {
  serve({4, 4});
  auto owned = [&] {
    std::vector<int> fds;
    for (int fd = 0; fd < 65536; fd++) {
      if (store_->owns_fd(fd)) fds.push_back(fd);
    }
    return fds;
  };
  connect();
  std::vector<int> fds = owned();
  EXPECT_EQ(fds.size(), 4u);  // a connection and a memory file each
  owner_.reset();
  for (int fd : fds) EXPECT_FALSE(transport::is_open(fd));
}

// ---- Forks ----

TEST_F(Pool, ASnapshotIsMadeOnEveryServer) {
  serve({4, 4});
  connect();
  auto ticket = store_->prepare_fork();
  ASSERT_TRUE(ticket.ok()) << ticket.status().text();
  EXPECT_TRUE(ticket->of[0].valid() && ticket->of[1].valid());
  EXPECT_FALSE(ticket->of[2].valid());
  int fd = ticket->of[1].fd;
  EXPECT_TRUE(store_->owns_fd(fd));
  store_->forked_in_parent(*ticket);
  EXPECT_FALSE(transport::is_open(fd));
}

TEST_F(Pool, AForkFailsWhereASlabWouldBeMissing) {
  serve({4, 4});
  connect();
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());  // one on each
  servers_[1]->refuse_snapshots = ENOMEM;
  EXPECT_EQ(store_->prepare_fork().status().code(), ENOMEM);
  EXPECT_EQ(servers_[0]->snapshots, 1u);  // created and dropped
  uint64_t slab = store_->servers().holders(0) == only(1) ? 0 : 1;
  store_->unclaim(slab * kSlabBytes, kSlabBytes);
  auto ticket = store_->prepare_fork();  // the child needs nothing of it now
  ASSERT_TRUE(ticket.ok()) << ticket.status().text();
  EXPECT_FALSE(ticket->of[1].valid());
  store_->forked_in_parent(*ticket);
}

TEST_F(Pool, AForkSucceedsWithoutAReplica) {
  serve({4, 4});
  connect(2);
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  servers_[0]->refuse_snapshots = ENOMEM;
  auto ticket = store_->prepare_fork();
  ASSERT_TRUE(ticket.ok()) << ticket.status().text();
  EXPECT_FALSE(ticket->of[0].valid());
  EXPECT_TRUE(ticket->of[1].valid());
  ASSERT_TRUE(store_->adopt_in_child(*ticket).ok());  // as the child would
  EXPECT_EQ(store_->servers().lost(), only(0));
}

// ---- Controllers ----

TEST_F(Pool, AControllerNamesTheServers) {
  serve({4, 4, 4});
  FakeController controller;
  using enum wire::ServerState;
  controller.set({{servers_[0]->address(), kUp}, {servers_[1]->address(), kSilent}, {servers_[2]->address(), kUp}});
  Status s = try_connect(controller.address());
  ASSERT_TRUE(s.ok()) << s.text();
  ASSERT_TRUE(store_->grow(6 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{3, 0, 3}));
  EXPECT_EQ(store_->servers().mapping().base, nullptr);  // servers may join
}

TEST_F(Pool, AnUnreachableServerIsSkipped) {
  serve({4});
  FakeController controller;
  controller.set({{"shm:///nonexistent/socket", wire::ServerState::kUp}});
  EXPECT_EQ(try_connect(controller.address()).code(), ENOENT);
  controller.set(
      {{"shm:///nonexistent/socket", wire::ServerState::kUp}, {servers_[0]->address(), wire::ServerState::kUp}});
  EXPECT_TRUE(try_connect(controller.address()).ok());
  controller.set({});
  EXPECT_EQ(try_connect(controller.address()).code(), ENOENT);
}

TEST_F(Pool, JoiningServersAreUsedAndLeavingServersAreEmptied) {
  serve({4, 4});
  FakeController controller;
  std::string a = servers_[0]->address(), b = servers_[1]->address();
  using enum wire::ServerState;
  controller.set({{a, kUp}});
  ASSERT_TRUE(try_connect(controller.address()).ok());
  ASSERT_TRUE(store_->grow(3 * kSlabBytes).ok());
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{3, 0}));

  controller.set({{a, kLeaving}, {b, kUp}});
  ASSERT_TRUE(store_->grow(2 * kSlabBytes).ok());
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{1, 2}));  // the unused reserve was returned
  ASSERT_TRUE(store_->claim(8 * kSlabBytes, kSlabBytes).ok());
  EXPECT_EQ(store_->servers().holders(8), only(1));
  EXPECT_EQ(store_->servers().holders(0), only(0));  // still there
  store_->unclaim(0, kSlabBytes);
  EXPECT_EQ(reserved(), (std::vector<uint64_t>{0, 2}));  // with its last slab it is empty

  controller.set({{a, kUp}, {b, kUp}});  // it is up again
  ASSERT_TRUE(store_->grow(2 * kSlabBytes).ok());
  EXPECT_GT(servers_[0]->reserved(), 0u);
  uint64_t placed[2] = {};
  for (uint64_t slab = 0; slab < 8 && store_->claim(slab * kSlabBytes, 4096).ok(); slab++) {
    for (unsigned s = 0; s < 2; s++) placed[s] += (store_->servers().holders(slab) & only(s)) != 0;
  }
  EXPECT_LE(placed[0], servers_[0]->reserved());  // what it had given back counts no more
  EXPECT_LE(placed[1] + 1, servers_[1]->reserved());
}

TEST_F(Pool, AFailedControllerIsNotContactedEachTime) {
  serve({8});
  FakeController controller;
  controller.set({{servers_[0]->address(), wire::ServerState::kUp}});
  ASSERT_TRUE(try_connect(controller.address()).ok());
  EXPECT_EQ(controller.list_requests, 1u);
  ASSERT_TRUE(store_->grow(kSlabBytes).ok());
  EXPECT_EQ(controller.list_requests, 2u);
  controller.refuse_lists = EIO;
  for (int i = 0; i < 3; i++) EXPECT_TRUE(store_->grow(kSlabBytes).ok());  // with the servers of the last list
  EXPECT_EQ(servers_[0]->reserved(), 4u);
  EXPECT_EQ(controller.list_requests, 3u);
}

}  // namespace
}  // namespace farside::remote
