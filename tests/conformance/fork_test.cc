// Snapshots of processes that fork, over both transports and with replicas. The servers are separate processes.
#include <algorithm>
#include <functional>
#include <random>

#include "ucx_relay.h"

namespace farside::testing {
namespace {

using remote::RemoteStore;

class ForkTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<RemoteStore> connect_one() {
    if (strcmp(GetParam(), "file") == 0) return connect(far_file(), "");
    if (strcmp(GetParam(), "replicas") != 0)
      return connect(server_.address(GetParam()), server_.token(), 2 * kSlab, 1, {}, {.ucx = relay_.socket().c_str()});
    std::string both = server_.address("shm") + "," + second_server_.address("tcp");
    return connect(both, server_.token(), 2 * kSlab, 2);
  }

  // Forks. The child adopts its snapshot and exits with the result of body. Returns the child's pid.
  template <typename Body>
  pid_t fork_child(RemoteStore* store, Body body) {
    auto ticket = store->prepare_fork();
    if (!ticket.ok()) throw std::runtime_error(ticket.status().text());
    pid_t pid = fork();
    if (pid == 0) _exit(store->adopt_in_child(*ticket).ok() ? body() : 99);
    store->forked_in_parent(*ticket);
    return pid;
  }
  static int status_of(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  const ucx::Settings ucx_ = {FARSIDE_UCX_HELPER, "tcp"};
  ServerProcess server_{ucx_}, second_server_;
  UcxTestRelay relay_{ucx_, unix_path()};
};
INSTANTIATE_TEST_SUITE_P(All, ForkTest, ::testing::Values("tcp", "shm", "ucx", "replicas", "file"),
                         [](const auto& kind) { return kind.param; });

// In a child, failures of gtest's macros would not be reported: bodies return 0, or a number that depends on the line
// of the failed check.
#define CHILD_EXPECT(condition) \
  if (!(condition)) return __LINE__ % 90 + 1

TEST_P(ForkTest, ParentAndChildAreIsolated) {
  auto store = connect_one();
  auto channel = open(store.get());
  Bytes before = pattern(20 * 4096, 1), parents = pattern(10000, 2), childs = pattern(10000, 3);
  ASSERT_EQ(write(channel.get(), 0, before), 0);
  Turn parent_wrote, child_wrote;
  pid_t pid = fork_child(store.get(), [&] {
    auto mine = open(store.get());
    CHILD_EXPECT(read(mine.get(), 0, before.size()) == before);
    parent_wrote.take();
    CHILD_EXPECT(read(mine.get(), 0, before.size()) == before);
    CHILD_EXPECT(write(mine.get(), 30000, childs) == 0);
    CHILD_EXPECT(discard(mine.get(), 0, 4096) == 0);
    CHILD_EXPECT(read(mine.get(), 0, 4096) == Bytes(4096));
    CHILD_EXPECT(read(mine.get(), 30000, childs.size()) == childs);
    child_wrote.give();
    return 0;
  });
  ASSERT_EQ(write(channel.get(), 5000, parents), 0);
  ASSERT_EQ(discard(channel.get(), 40960, 4096), 0);
  std::copy(parents.begin(), parents.end(), before.begin() + 5000);
  std::fill_n(before.begin() + 40960, 4096, 0);
  parent_wrote.give();
  child_wrote.take();
  EXPECT_EQ(read(channel.get(), 0, before.size()), before);
  EXPECT_EQ(status_of(pid), 0);
  ASSERT_EQ(write(channel.get(), 0, childs), 0);
  EXPECT_EQ(read(channel.get(), 0, childs.size()), childs);
}

// There is nothing that a snapshot could hold. The child makes a region of its own.
TEST_P(ForkTest, AForkBeforeTheFirstChannel) {
  auto store = connect_one();
  ASSERT_TRUE(store->grow(2 * kSlab).ok());
  Turn wrote;
  pid_t pid = fork_child(store.get(), [&] {
    auto grandchild = [&] {
      auto channel = open(store.get());
      CHILD_EXPECT(read(channel.get(), 0, 5000) == Bytes(5000));
      CHILD_EXPECT(write(channel.get(), 0, pattern(5000, 3)) == 0);
      return 0;
    };
    CHILD_EXPECT(status_of(fork_child(store.get(), grandchild)) == 0);
    auto channel = open(store.get());
    CHILD_EXPECT(read(channel.get(), 0, 5000) == Bytes(5000));
    CHILD_EXPECT(write(channel.get(), 0, pattern(5000, 2)) == 0);
    wrote.give();
    return 0;
  });
  wrote.take();
  auto channel = open(store.get());
  EXPECT_EQ(read(channel.get(), 0, 5000), Bytes(5000));
  EXPECT_EQ(status_of(pid), 0);
}

TEST_P(ForkTest, GrandchildrenOutliveTheirAncestors) {
  auto store = connect_one();
  Bytes first = pattern(50000, 1), second = pattern(3000, 2);
  Turn orphaned, verdict;
  {
    auto channel = open(store.get());
    ASSERT_EQ(write(channel.get(), 0, first), 0);
  }
  pid_t pid = fork_child(store.get(), [&] {
    auto mine = open(store.get());
    CHILD_EXPECT(write(mine.get(), 1000, second) == 0);
    fork_child(store.get(), [&] {
      auto last = open(store.get());
      orphaned.take();
      std::copy(second.begin(), second.end(), first.begin() + 1000);
      CHILD_EXPECT(read(last.get(), 0, first.size()) == first);
      CHILD_EXPECT(write(last.get(), 0, second) == 0);
      CHILD_EXPECT(read(last.get(), 0, second.size()) == second);
      CHILD_EXPECT(store->grow(kSlab).ok());
      verdict.give();
      return 0;
    });
    return 0;
  });
  ASSERT_EQ(status_of(pid), 0);
  store.reset();  // the process of the root region closes it, too
  orphaned.give();
  verdict.take();  // without it the test times out
}

// A sanitizer makes a fork take ten times as long; leaks are found without it.
TEST_P(ForkTest, ThousandsOfForksLeakNothing) {
  constexpr int kForks = kSanitized ? 300 : 2000;
  auto store = connect_one();
  auto channel = open(store.get());
  int fds = 0;
  size_t near = 0;
  for (int i = 0; i < kForks; i++) {
    Bytes now(1, static_cast<uint8_t>(i)), next(1, static_cast<uint8_t>(i + 1));
    ASSERT_EQ(write(channel.get(), 0, now), 0);
    bool looks = i % 50 == 0;
    pid_t pid = fork_child(store.get(), [&] {
      if (!looks) return 0;
      auto mine = open(store.get());
      return read(mine.get(), 0, 1) == now ? 0 : 1;
    });
    ASSERT_EQ(write(channel.get(), 0, next), 0);
    ASSERT_EQ(status_of(pid), 0);
    if (i > 0) continue;
    fds = open_fds();  // the first snapshot made the shm channel open its stream
    near = near_bytes();
  }
  EXPECT_EQ(open_fds(), fds);
  EXPECT_LE(near_bytes(), near + (1 << 20));
  EXPECT_EQ(read(channel.get(), 0, 1), Bytes(1, static_cast<uint8_t>(kForks)));
}

TEST_P(ForkTest, AChainOfForksWorks) {
  auto store = connect_one();
  auto channel = open(store.get());
  ASSERT_EQ(write(channel.get(), 0, Bytes(4096, 0)), 0);
  std::function<int(int)> generation = [&](int depth) -> int {
    auto mine = open(store.get());
    CHILD_EXPECT(read(mine.get(), 0, 4096) == Bytes(4096, static_cast<uint8_t>(depth - 1)));
    CHILD_EXPECT(write(mine.get(), 0, Bytes(4096, static_cast<uint8_t>(depth))) == 0);
    if (depth == 12) return 0;
    int result = status_of(fork_child(store.get(), [&] { return generation(depth + 1); }));
    CHILD_EXPECT(read(mine.get(), 0, 4096) == Bytes(4096, static_cast<uint8_t>(depth)));
    return result;
  };
  EXPECT_EQ(status_of(fork_child(store.get(), [&] { return generation(1); })), 0);
  EXPECT_EQ(read(channel.get(), 0, 4096), Bytes(4096, 0));
}

TEST_P(ForkTest, AFailedForkLeaksNothing) {
  auto store = connect_one();
  int fds = open_fds();
  auto ticket = store->prepare_fork();
  ASSERT_TRUE(ticket.ok());
  store->forked_in_parent(*ticket);
  EXPECT_EQ(open_fds(), fds);
}

// Random reads, writes and discards, compared with a private copy of all bytes.
class RandomProcess {
 public:
  RandomProcess(RemoteStore* store, uint64_t seed, Bytes* model) : store_(store), random_(seed), model_(*model) {}

  bool run(int steps) {
    auto channel = open(store_);
    for (int i = 0; i < steps; i++) {
      if (!step(channel.get())) return false;
    }
    return read(channel.get(), 0, model_.size()) == model_;
  }

 private:
  bool step(Channel* channel) {
    uint64_t far = random_() % model_.size();
    auto bytes = static_cast<uint32_t>(std::min<uint64_t>(1 + random_() % 10000, model_.size() - far));
    auto at = model_.begin() + static_cast<long>(far);
    if (random_() % 4 == 0) return read(channel, far, bytes) == Bytes(at, at + bytes);
    if (random_() % 6 == 0) {
      std::fill_n(at, bytes, 0);
      return discard(channel, far, bytes) == 0;
    }
    Bytes data = pattern(bytes, random_());
    std::copy(data.begin(), data.end(), at);
    return write(channel, far, data) == 0;
  }
  RemoteStore* store_;
  std::mt19937_64 random_;
  Bytes& model_;
};

TEST_P(ForkTest, RandomWritersMatchTheirModels) {
  auto store = connect_one();
  Bytes model(64 * 4096);
  ASSERT_TRUE(RandomProcess(store.get(), 1, &model).run(100));
  std::vector<pid_t> children;
  for (uint64_t i = 0; i < 6; i++) {
    children.push_back(fork_child(store.get(), [&] {
      CHILD_EXPECT(RandomProcess(store.get(), 100 + i, &model).run(100));
      pid_t grandchild =
          fork_child(store.get(), [&] { return RandomProcess(store.get(), 200 + i, &model).run(100) ? 0 : 1; });
      CHILD_EXPECT(RandomProcess(store.get(), 300 + i, &model).run(100));
      return status_of(grandchild);
    }));
    ASSERT_TRUE(RandomProcess(store.get(), 400 + i, &model).run(60));
  }
  for (pid_t pid : children) EXPECT_EQ(status_of(pid), 0);
  EXPECT_TRUE(RandomProcess(store.get(), 500, &model).run(50));
}

}  // namespace
}  // namespace farside::testing
