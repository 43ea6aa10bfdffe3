// Stores whose slabs are copied while programs write: by repairs of lost copies, and away from servers that drain.
#pragma once
#include <algorithm>
#include <bit>
#include <random>

#include "remote/pool_fixture.h"
#include "remote/repair.h"

namespace farside::remote {

inline constexpr uint64_t kPage = 4096;

class Repairs : public Pool {
 protected:
  // Loses a server: it ends, and a write to each slab finds it.
  void end_server(unsigned server, uint64_t slabs) {
    servers_[server]->stop();
    auto channel = open();
    for (uint64_t slab = 0; slab < slabs; slab++)
      ASSERT_EQ(write(*channel, (slab + 1) * kSlabBytes - kPage, FrameBytes(kPage, std::byte{7})), 0);
  }
  void repair_all() {
    while (store_->repair().step()) {}
  }
  ServerSet living(uint64_t slab) { return store_->servers().holders(slab) & store_->servers().usable(); }
};

// Writers with a shadow copy, while servers end one after the other and copies are made anew.
class RepairStress : public Repairs {
 protected:
  static constexpr uint64_t kSlabs = 3, kPagesUsed = 192;  // of each slab, in three places
  static constexpr unsigned kWriters = 3;

  static uint64_t far_of(uint64_t page) {
    uint64_t slab = page / kPagesUsed, in_slab = page % kPagesUsed;
    return slab * kSlabBytes + in_slab % 64 * kPage + in_slab / 64 * (5 << 20);
  }
  static FrameBytes content(uint64_t page, uint64_t version) {
    FrameBytes data(version == 0 ? 0 : kPage);
    data.resize(kPage);
    for (size_t i = 0; version > 0 && i + 16 <= kPage; i += 512) {
      memcpy(data.data() + i, &page, 8);
      memcpy(data.data() + i + 8, &version, 8);
    }
    return data;
  }
  void write_pages(unsigned writer) {
    auto channel = open();
    std::mt19937_64 random(writer);
    for (uint64_t round = 1; !stop_; round++) {
      uint64_t page = random() % (slabs_ * kPagesUsed / kWriters) * kWriters + writer;
      bool discards = random() % 8 == 0;
      versions_[page] = discards ? 0 : round;
      int r = discards ? discard(*channel, far_of(page), kPage) : write(*channel, far_of(page), content(page, round));
      if (r != 0) errors_++;
      uint64_t other = random() % (slabs_ * kPagesUsed / kWriters) * kWriters + writer;
      FrameBytes back(kPage);
      if (read(*channel, far_of(other), &back) != 0) errors_++;
      if (back != content(other, versions_[other])) wrong_++;
      done_++;
    }
  }
  void start_writers(unsigned count) {
    for (unsigned w = 0; w < count; w++) writers_.emplace_back([this, w] { write_pages(w); });
  }
  void start() {
    start_writers(kWriters);
    store_->start_threads();
  }
  void TearDown() override {  // of a test that failed
    if (!writers_.empty()) stop();
  }
  void stop() {
    stop_ = true;
    for (auto& writer : writers_) writer.join();
    writers_.clear();
    store_->stop_threads();
    EXPECT_EQ(errors_, 0u);
    EXPECT_EQ(wrong_, 0u);
  }
  void wait_for_repair() {
    for (int i = 0; i < 6000 && (store_->servers().degraded() > 0 || store_->servers().lost() == 0); i++)
      os::nanosleep_ns(10'000'000);
    EXPECT_EQ(store_->servers().degraded(), 0u);
  }
  void check_copies() {
    for (uint64_t page = 0; page < slabs_ * kPagesUsed; page++) {
      FrameBytes right = content(page, versions_[page]);
      for_each(living(far_of(page) / kSlabBytes),
               [&](unsigned s) { EXPECT_TRUE(server(s).has(far_of(page), right)) << page; });
    }
  }
  // The one that has the number now.
  FakeServer& server(unsigned number) {
    auto is = [&](auto& server) { return server->address() == store_->servers()[number].address(); };
    return **std::find_if(servers_.begin(), servers_.end(), is);
  }

  uint64_t slabs_ = kSlabs;  // that are used
  uint64_t versions_[kSlabs * kPagesUsed] = {};
  std::vector<std::thread> writers_;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> errors_{0}, wrong_{0}, done_{0};
};

}  // namespace farside::remote
