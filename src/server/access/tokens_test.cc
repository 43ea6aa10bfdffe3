#include "server/access/tokens.h"

#include <gtest/gtest.h>

#include <cstring>

#include "server/regions/memory_pool.h"

namespace farside::server {
namespace {

constexpr char kBuild[] = "the secret of build", kRack[] = "the secret of rack1";

std::string error_of(std::string_view text) {
  auto parsed = parse_tokens(text, "tokens");
  return parsed.ok() ? "" : parsed.status().text();
}

TEST(TokenFile, NamesClientsAndServers) {
  auto parsed = parse_tokens(
      "# comment\n\n"
      "client build\t0123456789abcdef quota=8G allow=create,fork\r\n"
      "  client all fedcba9876543210\n"
      "server rack1 0123456789abcdeF",
      "tokens");
  ASSERT_TRUE(parsed.ok()) << parsed.status().text();
  const std::vector<TokenEntry>& entries = *parsed;
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "build");
  EXPECT_EQ(entries[0].secret, "0123456789abcdef");
  EXPECT_EQ(entries[0].quota, uint64_t{8} << 30);
  EXPECT_EQ(entries[0].operations, kMayCreate | kMayFork);
  EXPECT_EQ(entries[1].operations, kClientOperations);
  EXPECT_EQ(entries[1].quota, 0u);
  EXPECT_EQ(entries[2].operations, kMayReport);
}

TEST(TokenFile, ErrorsNameTheLineAndNoSecret) {
  constexpr char kGood[] = "client a 0123456789abcdef";
  for (std::string bad :
       {"user a 0123456789abcdef", "client", "client a", "client a short", "client a 0123456789abcdef more",
        "client a 0123456789abcdef quota=much", "client a 0123456789abcdef allow=write",
        "server a 0123456789abcdef quota=1G", "client a-name-that-is-longer-than-all-the-names 0123456789abcdef"}) {
    std::string error = error_of("# first\n" + bad);
    EXPECT_EQ(error.find("tokens:2: "), 0u) << bad << ": " << error;
    EXPECT_EQ(error.find("0123456789abcdef"), error.npos) << error;
  }
  EXPECT_NE(error_of(std::string(kGood) + "\n" + kGood).find("twice"), std::string::npos);
  EXPECT_NE(error_of(std::string(kGood) + "\nclient b 0123456789abcdef").find("same secret"), std::string::npos);
  EXPECT_NE(error_of("# nothing\n").find("names no token"), std::string::npos);
  EXPECT_EQ(error_of(kGood), "");
}

class TokensTest : public testing::Test {
 protected:
  std::shared_ptr<Tenant> find(const char* secret) {
    wire::Greeting greeting = {};
    greeting.hello.nonce[0] = 1;
    return tokens_.find(greeting, wire::client_proof(wire::key_of_token(secret), greeting), &key_);
  }
  Account server_{0};
  Tokens tokens_{{{"build", kBuild, kMayCreate, 1}, {"rack1", kRack, kMayReport, 0}}, &server_};
  wire::Key key_;
};

TEST_F(TokensTest, ATokenIsFoundByAProof) {
  EXPECT_EQ(find(kBuild)->name, "build");
  EXPECT_EQ(key_.size, strlen(kBuild));
  EXPECT_TRUE(find(kRack)->may(kMayReport));
  EXPECT_FALSE(find(kRack)->may(kClientOperations));
  EXPECT_EQ(find("another one"), nullptr);
  EXPECT_EQ(find(""), nullptr);
}

TEST_F(TokensTest, NewRightsApplyToTenantsThatAreConnected) {
  std::shared_ptr<Tenant> build = find(kBuild), rack = find(kRack);
  tokens_.replace({{"build", "another secret of build", kMayFork, 7}});
  EXPECT_EQ(find(kBuild), nullptr);
  EXPECT_EQ(find("another secret of build"), build);
  EXPECT_EQ(build->account.capacity(), 7u);
  EXPECT_TRUE(build->may(kMayFork));
  EXPECT_FALSE(build->may(kMayCreate));
  EXPECT_FALSE(rack->may(kMayReport));  // removed
}

TEST(SingleToken, WithoutASecretAllClientsMayDoEverything) {
  EXPECT_EQ(single_token("")[0].operations, kClientOperations | kMayOffload | kMayReport | kMayOperate);
  EXPECT_EQ(single_token("secret")[0].operations, kClientOperations | kMayOffload);
}

TEST(TokenQuota, IsOfAllRegionsTogether) {
  constexpr uint64_t kSlab = wire::kSlabBytes;
  MemoryPool pool(64 * kSlab, 0);
  auto tenant = std::make_shared<Tenant>("build", pool.account());
  tenant->account.set_capacity(3 * kSlab);
  Region *a = *pool.create(8 * kSlab, tenant), *b = *pool.create(8 * kSlab, tenant), *other = *pool.create(8 * kSlab);
  EXPECT_TRUE(pool.grow(a, 2 * kSlab, 1).ok());
  auto refused = pool.grow(b, 2 * kSlab, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ENOMEM);
  EXPECT_NE(strstr(refused.status().text(), "token build"), nullptr) << refused.status().text();
  EXPECT_TRUE(pool.grow(b, kSlab, 2).ok());
  EXPECT_TRUE(pool.grow(other, 8 * kSlab, 1).ok());
  pool.shrink(a, 2 * kSlab, 2);
  EXPECT_TRUE(pool.grow(b, 2 * kSlab, 3).ok());
  tenant->account.set_capacity(Account::kUnlimited);
  EXPECT_TRUE(pool.grow(a, 4 * kSlab, 3).ok());
  for (Region* region : {a, b, other}) pool.release(region);
}

}  // namespace
}  // namespace farside::server
