// Requests in pieces: what they visit while others wait, and what regions contain between the pieces.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "server/regions/test_support.h"

namespace farside::server {
namespace {

constexpr uint64_t kLimit = 4096;

// Each region has a descriptor.
unsigned regions_that_fit(unsigned wanted) {
  rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<unsigned>(std::min<rlim_t>(wanted, limit.rlim_cur - 100));
}

// Random operations on trees of forked regions, compared with plain copies of all bytes. Between the pieces of an
// operation, other members of the tree operate, and regions that ended are merged and freed.
class Forest {
 public:
  Forest(uint64_t seed, uint64_t limit) : random_(seed), pool_(256 * kSlab, 0), limit_(limit) {
    Region* root = new_root(&pool_, kPages * kPage, kSlab);
    root->visits().limit = limit;
    live_.push_back(std::make_shared<Member>(Member{root, std::vector<uint8_t>(kPages * kPage)}));
  }
  ~Forest() {
    while (!live_.empty()) {
      note_visits(*live_[0]);
      end_one();
    }
    while (pool_.tidy()) {}
    EXPECT_EQ(pool_.usage().charged, 0u);
    EXPECT_EQ(pool_.usage().overhead, 0u);
    EXPECT_EQ(pool_.usage().regions, 0u);
    EXPECT_EQ(pool_.usage().snapshots, 0u);
    EXPECT_EQ(pool_.usage().stored, 0u);
    EXPECT_LE(most_, limit_);
  }

  void step() {
    switch (random_() % 16) {
      case 0:
        return fork_one();
      case 1:
        if (live_.size() > 1) end_one();
        return;
      case 2:
      case 3:
        return discard_some();
      case 4:
      case 5:
        return check_some();
      case 6:
        pool_.tidy();
        return;
      default:
        return write_some();
    }
  }
  void check_all() {
    for (auto& m : live_) ASSERT_EQ(read(m->region, 0, m->bytes.size()), m->bytes);
  }
  unsigned pieces() const { return pieces_; }

 private:
  static constexpr uint64_t kPages = 24;
  static constexpr size_t kMembers = 8;
  struct Member {
    Region* region;
    std::vector<uint8_t> bytes;
    bool busy = false;  // a request of it is in pieces
  };
  using MemberPtr = std::shared_ptr<Member>;

  MemberPtr pick() {
    auto m = live_[random_() % live_.size()];
    return m->busy ? nullptr : m;
  }
  wire::ByteRange range() {
    uint64_t offset = random_() % (kPages * kPage), bytes = 1 + random_() % (4 * kPage);
    if (random_() % 2) offset = offset / kPage * kPage, bytes = (bytes + kPage - 1) / kPage * kPage;
    return {offset, std::min(bytes, kPages * kPage - offset)};
  }
  template <typename Next>
  void run(const MemberPtr& m, Next piece) {
    Progress progress;
    m->busy = true;
    for (int r; (r = piece(&progress)) != 0; pieces_++) {
      ASSERT_EQ(r, kMore);
      if (random_() % 2 == 0) step();
      if (testing::Test::HasFatalFailure()) return;
    }
    m->busy = false;
  }
  void note_visits(const Member& m) { most_ = std::max<uint64_t>(most_, m.region->visits().most); }
  void fork_one() {
    MemberPtr parent = pick();
    if (!parent || live_.size() >= kMembers) return;
    live_.push_back(std::make_shared<Member>(Member{fork_of(&pool_, parent->region), parent->bytes}));
  }
  void end_one() {
    MemberPtr m = pick();
    if (!m) return;
    pool_.release(m->region);
    std::erase(live_, m);
  }
  void write_some() {
    MemberPtr m = pick();
    if (!m) return;
    wire::ByteRange r = range();
    std::vector<uint8_t> data(r.bytes);
    for (auto& b : data) b = static_cast<uint8_t>(random_());
    auto* from = reinterpret_cast<const std::byte*>(data.data());
    run(m, [&](Progress* p) { return m->region->write(List{r}, from, p); });
    std::copy(data.begin(), data.end(), m->bytes.begin() + static_cast<long>(r.offset));
  }
  void discard_some() {
    MemberPtr m = pick();
    if (!m) return;
    wire::ByteRange r = range();
    run(m, [&](Progress* p) { return m->region->discard(List{r}, p); });
    std::fill_n(m->bytes.begin() + static_cast<long>(r.offset), r.bytes, 0);
  }
  void check_some() {
    MemberPtr m = pick();
    if (!m) return;
    wire::ByteRange r = range();
    std::vector<uint8_t> out(r.bytes);
    run(m, [&](Progress* p) { return m->region->read(List{r}, reinterpret_cast<std::byte*>(out.data()), p); });
    auto from = m->bytes.begin() + static_cast<long>(r.offset);
    ASSERT_EQ(out, std::vector<uint8_t>(from, from + static_cast<long>(r.bytes)));
  }

  std::mt19937_64 random_;
  MemoryPool pool_;
  const uint64_t limit_;
  std::vector<MemberPtr> live_;
  uint64_t most_ = 0;
  unsigned pieces_ = 0;
};

class Pieces : public testing::TestWithParam<uint64_t> {};

TEST_P(Pieces, RandomForestsMatchTheModel) {
  unsigned pieces = 0;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    Forest forest(seed, GetParam());
    for (int i = 0; i < 400; i++) {
      forest.step();
      if (i % 50 == 0) forest.check_all();
      if (HasFatalFailure()) return;
    }
    forest.check_all();
    pieces += forest.pieces();
  }
  EXPECT_EQ(pieces > 0, GetParam() < kLimit);
}

// The smallest limit lets a search pass the longest chain here, and then one page change.
INSTANTIATE_TEST_SUITE_P(Limits, Pieces, testing::Values(20, kLimit));

// A page with many snapshots, in more than one piece for a page.
TEST(PiecesOfOnePage, AreSavedForAllSnapshots) {
  MemoryPool pool(64 * kSlab, 0);
  Region* root = new_root(&pool, kSlab, kSlab);
  root->visits().limit = 8;
  ASSERT_EQ(write(root, 0, 2 * kPage, 'a'), 0);
  std::vector<Region*> snapshots;
  for (int i = 0; i < 50; i++) snapshots.push_back(fork_of(&pool, root));
  const std::vector<uint8_t> data(2 * kPage, 'b');
  Progress progress;
  int pieces = 1;
  while (root->write(List{{0, 2 * kPage}}, reinterpret_cast<const std::byte*>(data.data()), &progress) == kMore) {
    if (pieces++ == 3) snapshots.push_back(fork_of(&pool, root));
    if (pieces == 5) pool.release(snapshots[20]), snapshots.erase(snapshots.begin() + 20);
  }
  EXPECT_GE(pieces, 2 * 50 / 8);
  EXPECT_LE(root->visits().most, 8u);
  for (Region* s : snapshots) EXPECT_EQ(read(s, 0, 2 * kPage), std::vector<uint8_t>(2 * kPage, 'a'));
  EXPECT_EQ(read(root, 0, 2 * kPage), data);
  for (Region* s : snapshots) pool.release(s);
  pool.release(root);
  while (pool.tidy()) {}
  EXPECT_EQ(pool.usage().charged, 0u);
}

TEST(PiecesOfARequest, AreBoundedHoweverManySnapshotsThereAre) {
  const unsigned count = regions_that_fit(3000);
  ASSERT_GE(count, 500u);
  MemoryPool pool(1024 * kSlab, 0);
  Region* root = new_root(&pool, kSlab, kSlab);
  std::vector<Region*> snapshots;
  for (unsigned i = 0; i < count; i++) snapshots.push_back(fork_of(&pool, root));
  const std::vector<uint8_t> data(64 * kPage, 'x');
  Progress progress;
  uint64_t pieces = 1;
  while (root->write(List{{0, data.size()}}, reinterpret_cast<const std::byte*>(data.data()), &progress) == kMore)
    pieces++;
  EXPECT_GE(pieces, 64 * uint64_t{count} / kLimit);
  EXPECT_EQ(read(snapshots[count / 2], 0, data.size()), std::vector<uint8_t>(data.size()));
  EXPECT_EQ(read(root, 0, data.size()), data);
  EXPECT_EQ(discard(root, 0, kSlab), 0);
  EXPECT_LE(root->visits().most, kLimit);
  for (Region* s : snapshots) pool.release(s);
  EXPECT_LE(root->visits().most, kLimit);
  pool.release(root);
  EXPECT_EQ(pool.usage().regions, 0u);
}

TEST(PiecesOfARequest, AreBoundedHoweverLongTheChainIs) {
  const unsigned depth = regions_that_fit(2000);
  ASSERT_GE(depth, 500u);
  MemoryPool pool(64 * kSlab, 0);
  std::vector<Region*> chain = {new_root(&pool, kSlab, kSlab)};
  std::vector<uint8_t> model(256 * kPage, 'x');
  ASSERT_EQ(write(chain[0], 0, model), 0);
  for (unsigned i = 1; i < depth; i++) {
    chain.push_back(fork_of(&pool, chain.back()));
    if (i % 100 != 0) continue;
    ASSERT_EQ(write(chain.back(), i % 251 * kPage, kPage, static_cast<uint8_t>(i)), 0);
    std::fill_n(model.begin() + i % 251 * kPage, kPage, static_cast<uint8_t>(i));
  }
  Region* last = chain.back();
  EXPECT_EQ(read(last, 0, model.size()), model);
  std::vector<wire::ByteRange> ranges(256, {10, 100 * kPage});
  ASSERT_EQ(discard_list(last, {reinterpret_cast<const std::byte*>(ranges.data()), 256}), 0);
  std::fill_n(model.begin() + 10, 100 * kPage, 0);
  for (unsigned i = 0; i + 1 < depth; i++) pool.release(chain[i]);  // each merges with the next one
  EXPECT_EQ(read(last, 0, model.size()), model);
  while (pool.tidy()) {}
  EXPECT_EQ(pool.usage().regions, 1u);
  EXPECT_EQ(pool.usage().snapshots, 0u);
  EXPECT_FALSE(last->is_overlay());
  EXPECT_EQ(read(last, 0, model.size()), model);
  EXPECT_LE(last->visits().most, kLimit);
  pool.release(last);
  EXPECT_EQ(pool.usage().charged, 0u);
}

// As `cases/discard-chain`: pages that were discarded once are not visited again, however often they are listed.
TEST(PiecesOfARequest, RepeatedDiscardsAreCheap) {
  MemoryPool pool(64 * kSlab, 0);
  Region* region = new_root(&pool, kSlab, kSlab);
  for (uint64_t at = 0; at < kSlab; at += 1 << 20) ASSERT_EQ(write(region, at, 1 << 20, 1), 0);
  for (int i = 0; i < 20; i++) region = fork_of(&pool, region);
  std::vector<wire::ByteRange> ranges(256, {0, kSlab});
  Progress progress;
  while (region->discard({reinterpret_cast<const std::byte*>(ranges.data()), 256}, &progress) == kMore) {}
  EXPECT_LE(progress.visits, 4096 + 64 * 22 + 256 * 2 * 64);  // each page, each word through the chain, each word again
  EXPECT_EQ(read(region, 0, kSlab), std::vector<uint8_t>(kSlab));
}

TEST(MemoryPool, TheLengthOfChainsIsLimited) {
  if (regions_that_fit(Region::kMaxChain + 1) <= Region::kMaxChain) GTEST_SKIP() << "too few descriptors";
  MemoryPool pool(64 * kSlab, 0);
  Region* region = new_root(&pool, kPage, kSlab);
  for (unsigned i = 1; i < Region::kMaxChain; i++) region = fork_of(&pool, region);
  EXPECT_EQ(pool.snapshot(region->name().id, region->name().secret).status().code(), EMLINK);
  EXPECT_EQ(write(region, 10, 10, 'x'), 0);
  EXPECT_EQ(discard(region, 0, 100), 0);
  EXPECT_EQ(read(region, 0, 1), std::vector<uint8_t>{0});
  EXPECT_LE(region->visits().most, kLimit);
}

// A dead base that merges is not reachable: its content changes.
TEST(MemoryPool, ABaseThatMergesCannotBeAttached) {
  MemoryPool pool(64 * kSlab, 0);
  Region* base = new_root(&pool, kSlab, kSlab);
  auto name = base->name();
  base->visits().limit = 8;
  Region* child = fork_of(&pool, base);
  ASSERT_EQ(write(child, 0, 100 * kPage, 'c'), 0);
  pool.release(base);
  EXPECT_FALSE(pool.is_tidy());
  EXPECT_FALSE(pool.attach(name.id, name.secret).ok());
  EXPECT_FALSE(pool.snapshot(name.id, name.secret).ok());
  int pieces = 1;
  for (; pool.tidy(); pieces++) EXPECT_EQ(read(child, 0, 100 * kPage), std::vector<uint8_t>(100 * kPage, 'c'));
  EXPECT_GE(pieces, 100 / 8);
  EXPECT_FALSE(child->is_overlay());
  EXPECT_EQ(child->stored_bytes(), 100 * kPage);
  pool.release(child);
  EXPECT_EQ(pool.usage().charged, 0u);
}

TEST(MemoryPool, FreedMemoryIsChargedUntilItIsFreed) {
  constexpr uint64_t kSlabs = 4;
  MemoryPool pool(kSlabs * kSlab, 0);
  Region* region = new_root(&pool, kSlabs * kSlab, kSlabs * kSlab);
  for (uint64_t at = 0; at < kSlabs * kSlab; at += 1 << 20) ASSERT_EQ(write(region, at, 1 << 20, 1), 0);
  pool.release(region);  // frees one piece
  EXPECT_EQ(pool.usage().regions, 0u);
  EXPECT_EQ(pool.usage().charged, (kSlabs - 1) * kSlab);
  Region* next_one = *pool.create(kSlab);
  int pieces = 1;
  for (; pool.tidy(); pieces++) {}
  EXPECT_EQ(pieces, static_cast<int>(kSlabs) - 1);
  EXPECT_EQ(pool.usage().charged, 0u);
  EXPECT_TRUE(pool.grow(next_one, kSlab, next()).ok());
  EXPECT_EQ(read(next_one, 0, kSlab), std::vector<uint8_t>(kSlab));
  pool.release(next_one);
}

// Readers that follow each other without a gap do not keep a writer out.
TEST(FairLock, ExcludesAndDoesNotStarve) {
  FairLock lock;
  std::atomic<bool> over{false};
  std::atomic<int> inside{0};
  uint64_t count = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; i++) {
    readers.emplace_back([&] {
      while (!over) {
        std::shared_lock hold(lock);
        inside++;
        EXPECT_EQ(count % 2, 0u);
        inside--;
      }
    });
  }
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; i++) {
    writers.emplace_back([&] {
      for (int n = 0; n < 2000; n++) {
        std::unique_lock hold(lock);
        count++;
        EXPECT_EQ(inside, 0);
        count++;
      }
    });
  }
  for (auto& t : writers) t.join();
  over = true;
  for (auto& t : readers) t.join();
  EXPECT_EQ(count, 8000u);
}

}  // namespace
}  // namespace farside::server
