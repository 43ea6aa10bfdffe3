// Tests of a store of several servers and of its channels. The servers are fakes that promise more than they have,
// refuse requests or end, as a test needs. tests/conformance tests the store with real servers.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "remote/test_support.h"

namespace farside::remote {
namespace {

using transport::Channel;
using transport::FrameBytes;
using transport::kPatience;
using transport::numbered;
using transport::Segment;
using transport::Token;

class Pool : public testing::Test {
 protected:
  void serve(std::vector<uint64_t> slabs, bool tcp = false) {
    for (uint64_t s : slabs) servers_.push_back(std::make_unique<FakeServer>(s, tcp));
    for (auto& server : servers_) list_ += (list_.empty() ? "" : ",") + server->address();
  }
  Status try_connect(const std::string& list, unsigned replicas = 1, bool all_needed = true) {
    auto made = PoolStore::connect({list.c_str(), "", kTestRegion, replicas, {}, nullptr, all_needed});
    if (!made.ok()) return made.status();
    owner_ = std::unique_ptr<RemoteStore>(std::move(*made));
    store_ = static_cast<PoolStore*>(owner_.get());
    return {};
  }
  void connect(unsigned replicas = 1) {
    Status s = try_connect(list_, replicas);
    ASSERT_TRUE(s.ok()) << s.text();
  }
  std::unique_ptr<Channel> open() {
    Status status;
    std::unique_ptr<Channel> channel(store_->open_channel(&status));
    EXPECT_TRUE(channel) << status.text();
    return channel;
  }
  std::vector<uint64_t> reserved() const {
    std::vector<uint64_t> out;
    for (auto& server : servers_) out.push_back(server->reserved());
    return out;
  }
  std::vector<ServerSet> holders(uint64_t slabs) const {
    std::vector<ServerSet> out;
    for (uint64_t slab = 0; slab < slabs; slab++) out.push_back(store_->servers().holders(slab));
    return out;
  }
  int write(Channel& channel, uint64_t far, FrameBytes data) {
    Segment s = {far, static_cast<uint32_t>(data.size()), data.data()};
    Token token = 0;
    int r = channel.submit_write({&s, 1}, -1, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  int read(Channel& channel, uint64_t far, FrameBytes* data) {
    Segment s = {far, static_cast<uint32_t>(data->size()), data->data()};
    Token token = 0;
    int r = channel.submit_read({&s, 1}, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  int discard(Channel& channel, uint64_t far, uint32_t bytes) {
    Segment s = {far, bytes, nullptr};
    Token token = 0;
    int r = channel.submit_discard({&s, 1}, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  bool has(size_t server, uint64_t far, const FrameBytes& data) {
    return memcmp(servers_[server]->memory() + far, data.data(), data.size()) == 0;
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::string list_;
  std::unique_ptr<RemoteStore> owner_;
  PoolStore* store_ = nullptr;
};

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

// ---- Channels ----

constexpr uint64_t kBorder = kSlabBytes;

TEST_F(Pool, RequestsAreSplitBetweenServers) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  ASSERT_NE(store_->servers().holders(0), store_->servers().holders(1));
  auto channel = open();
  FrameBytes data = numbered(10'000), back(10'000);
  ASSERT_EQ(write(*channel, kBorder - 3000, data), 0);
  size_t first = static_cast<size_t>(std::countr_zero(store_->servers().holders(0)));
  EXPECT_TRUE(has(first, kBorder - 3000, FrameBytes(data.begin(), data.begin() + 3000)));
  EXPECT_TRUE(has(first, kBorder, FrameBytes(7000)));  // no bytes of the other server
  EXPECT_TRUE(has(1 - first, kBorder - 3000, FrameBytes(3000)));
  EXPECT_TRUE(has(1 - first, kBorder, FrameBytes(data.begin() + 3000, data.end())));
  ASSERT_EQ(read(*channel, kBorder - 3000, &back), 0);
  EXPECT_EQ(back, data);
  ASSERT_EQ(discard(*channel, kBorder - 4096, 8192), 0);
  EXPECT_TRUE(has(first, kBorder - 4096, FrameBytes(4096)));
  EXPECT_TRUE(has(1 - first, kBorder, FrameBytes(4096)));
}

TEST_F(Pool, EveryCopyIsWritten) {
  serve({8, 8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 5000, numbered(100)), 0);
  for (unsigned s = 0; s < 3; s++)
    EXPECT_EQ(has(s, 5000, numbered(100)), (store_->servers().holders(0) & only(s)) != 0);
}

TEST_F(Pool, APipeIsReadOnceForAllCopies) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  auto channel = open();
  int fds[2];
  ASSERT_EQ(os::pipe(fds, 0), 0);
  transport::Fd out(fds[0]), in(fds[1]);
  FrameBytes data = numbered(1000);
  ASSERT_EQ(os::write(in.get(), data.data(), data.size()), 1000);
  Segment segments[] = {{kBorder - 300, 600, nullptr}, {100, 350, nullptr}};
  Token token;
  ASSERT_EQ(channel->submit_write(segments, out.get(), &token), 0);
  ASSERT_EQ(channel->wait(token, kPatience), 0);
  for (size_t s = 0; s < 2; s++) {
    EXPECT_TRUE(has(s, kBorder - 300, FrameBytes(data.begin(), data.begin() + 600)));
    EXPECT_TRUE(has(s, 100, FrameBytes(data.begin() + 600, data.begin() + 950)));
  }
  std::byte rest[100];
  EXPECT_EQ(os::read(out.get(), rest, sizeof rest), 50);
}

TEST_F(Pool, UnplacedSlabsReadAsZeroWithoutARequest) {
  serve({8, 8}, true);
  connect();
  auto channel = open();
  FrameBytes back(500, std::byte{0xee});
  ASSERT_EQ(read(*channel, kBorder - 100, &back), 0);
  EXPECT_EQ(back, FrameBytes(500));
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  ASSERT_EQ(write(*channel, kBorder - 100, numbered(100)), 0);
  back.assign(500, std::byte{0xee});
  ASSERT_EQ(read(*channel, kBorder - 100, &back), 0);  // half of it is placed
  FrameBytes expected = numbered(100);
  expected.resize(500);
  EXPECT_EQ(back, expected);
  EXPECT_EQ(servers_[0]->reads + servers_[1]->reads, 1u);
  EXPECT_EQ(discard(*channel, 5 * kSlabBytes, 4096), 0);
}

TEST_F(Pool, AWriteWithoutAPlaceIsRefused) {
  serve({8, 8});
  connect();
  auto channel = open();
  EXPECT_EQ(write(*channel, 0, numbered(10)), -ENOSPC);
  ASSERT_TRUE(store_->grow(kSlabBytes).ok());
  EXPECT_EQ(write(*channel, kBorder - 5, numbered(10)), -ENOSPC);  // one slab only
  EXPECT_EQ(write(*channel, 0, numbered(10)), 0);
}

TEST_F(Pool, RequestsOverTheLimitsAreRefused) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, kTestRegion).ok());
  auto channel = open();
  std::byte b[16];
  Token tokens[transport::kMaxInFlight], token;
  for (Segment bad : {Segment{kTestRegion, 1, b}, Segment{kTestRegion - 1, 2, b}, Segment{~uint64_t{0}, 1, b}}) {
    EXPECT_EQ(channel->submit_read({&bad, 1}, &token), -ERANGE);
    EXPECT_EQ(channel->submit_write({&bad, 1}, -1, &token), -ERANGE);
    EXPECT_EQ(channel->submit_discard({&bad, 1}, &token), -ERANGE);
  }
  Segment one = {0, 1, b};
  for (Token& t : tokens) ASSERT_EQ(channel->submit_read({&one, 1}, &t), 0);
  EXPECT_EQ(channel->submit_read({&one, 1}, &token), -EAGAIN);
  for (Token t : tokens) EXPECT_EQ(channel->wait(t, kPatience), 0);
  EXPECT_EQ(channel->poll(tokens[0]), -EINVAL);
  EXPECT_EQ(channel->submit_read({&one, 1}, &token), 0);
}

TEST_F(Pool, ReadsUseTheRemainingCopy) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  store_->servers().lose(store_->servers().reader_of(0, store_->servers().holders(0)), "the test says so");
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
}

TEST_F(Pool, AReadGoesToOneCopy) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, 4 * kSlabBytes).ok());
  auto channel = open();
  FrameBytes back(100);
  for (uint64_t slab = 0; slab < 4; slab++) ASSERT_EQ(read(*channel, slab * kSlabBytes, &back), 0);
  EXPECT_EQ(servers_[0]->reads, 2u);
  EXPECT_EQ(servers_[1]->reads, 2u);
}

TEST_F(Pool, AReadInPlaceNeedsNoBuffer) {
  serve({8, 8});
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  Segment s = {4096, 4096, nullptr};
  Token token;
  ASSERT_EQ(channel->submit_read({&s, 1}, &token), 0);
  EXPECT_EQ(channel->wait(token, kPatience), 0);
}

TEST_F(Pool, ASlabWithoutAServerIsLost) {
  serve({8, 8});
  connect();
  ASSERT_TRUE(store_->claim(0, 2 * kSlabBytes).ok());
  auto channel = open();
  auto gone = static_cast<unsigned>(std::countr_zero(store_->servers().holders(0)));
  store_->servers().lose(gone, "the test says so");
  FrameBytes back(10);
  EXPECT_EQ(read(*channel, 0, &back), -ECONNRESET);
  EXPECT_EQ(write(*channel, 0, back), -ECONNRESET);
  EXPECT_EQ(read(*channel, kBorder - 5, &back), -ECONNRESET);  // half of it
  EXPECT_EQ(discard(*channel, 0, 4096), 0);                    // nothing is stored
  EXPECT_EQ(read(*channel, kBorder, &back), 0);
}

TEST_F(Pool, AReplicaThatRefusesAWriteIsLostAndTheOtherIsUsed) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  servers_[0]->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), 0);
  EXPECT_EQ(store_->servers().lost(), only(0));  // it has missed a write
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
  servers_[1]->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), -ENOSPC);  // no server has stored it
}

TEST_F(Pool, WithoutCopiesARefusalIsReturned) {
  serve({8, 8}, true);
  connect();
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  for (auto& server : servers_) server->refuse_writes = ENOSPC;
  EXPECT_EQ(write(*channel, 0, numbered(100)), -ENOSPC);
  EXPECT_EQ(store_->servers().lost(), 0u);
  for (auto& server : servers_) server->refuse_writes = 0;
  EXPECT_EQ(write(*channel, 0, numbered(100)), 0);
}

TEST_F(Pool, AReadThatOneCopyRefusesUsesTheOther) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  unsigned reader = store_->servers().reader_of(0, store_->servers().holders(0));
  servers_[reader]->refuse_reads = EIO;
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100));
  EXPECT_EQ(store_->servers().lost(), only(reader));
}

TEST_F(Pool, ServersThatEndAreLostOneByOne) {
  serve({8, 8}, true);
  connect(2);
  ASSERT_TRUE(store_->claim(0, kSlabBytes).ok());
  auto channel = open();
  ASSERT_EQ(write(*channel, 0, numbered(100)), 0);
  servers_[0]->stop();
  EXPECT_EQ(write(*channel, 0, numbered(100, 1)), 0);
  EXPECT_EQ(store_->servers().lost(), only(0));
  FrameBytes back(100);
  ASSERT_EQ(read(*channel, 0, &back), 0);
  EXPECT_EQ(back, numbered(100, 1));
  servers_[1]->stop();
  EXPECT_EQ(read(*channel, 0, &back), -ECONNRESET);
  EXPECT_EQ(write(*channel, 0, back), -ECONNRESET);
}

}  // namespace
}  // namespace farside::remote
