// A pool of fake servers, for tests of a store of several servers and of its channels. The servers promise more than
// they have, refuse requests or end, as a test needs.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "remote/test_support.h"

namespace farside::remote {

using transport::ByteRange;
using transport::Channel;
using transport::FrameBytes;
using transport::kPatience;
using transport::numbered;
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
    ByteRange s = {far, static_cast<uint32_t>(data.size()), data.data()};
    Token token = 0;
    int r = channel.submit_write({&s, 1}, -1, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  int read(Channel& channel, uint64_t far, FrameBytes* data) {
    ByteRange s = {far, static_cast<uint32_t>(data->size()), data->data()};
    Token token = 0;
    int r = channel.submit_read({&s, 1}, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  int discard(Channel& channel, uint64_t far, uint32_t bytes) {
    ByteRange s = {far, bytes, nullptr};
    Token token = 0;
    int r = channel.submit_discard({&s, 1}, &token);
    return r < 0 ? r : channel.wait(token, kPatience);
  }
  bool has(size_t server, uint64_t far, const FrameBytes& data) { return servers_[server]->has(far, data); }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::string list_;
  std::unique_ptr<RemoteStore> owner_;
  PoolStore* store_ = nullptr;
};

}  // namespace farside::remote
