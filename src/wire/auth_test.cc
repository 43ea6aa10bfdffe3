#include "wire/auth.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace farside::wire {
namespace {

Greeting example() {
  Greeting greeting = {};
  greeting.hello = {HelloMode::kAttach, 0, 0, 7, 5, 2, {1, 2, 3}};
  greeting.challenge = {{4, 5, 6}};
  return greeting;
}

bool same(const Proof& a, const Proof& b) { return same_secret(&a, &b, sizeof a); }

TEST(Auth, AProofDependsOnTheKeyAndOnEverythingThatWasSent) {
  const Key key = key_of_token("open sesame");
  const Proof right = client_proof(key, example());
  EXPECT_TRUE(same(right, client_proof(key, example())));
  EXPECT_FALSE(same(right, client_proof(key_of_token("open barley"), example())));
  for (size_t i = 0; i < sizeof(Greeting); i++) {
    Greeting other = example();
    reinterpret_cast<uint8_t*>(&other)[i] ^= 1;
    EXPECT_FALSE(same(right, client_proof(key, other))) << i;
  }
}

TEST(Auth, AProofOfOneSideIsNoneOfTheOther) {
  const Key key = key_of_token("open sesame");
  HelloReply reply = {};
  const Proof server = server_proof(key, example(), reply);
  EXPECT_FALSE(same(server, client_proof(key, example())));
  for (size_t i = 0; i < offsetof(HelloReply, proof); i++) {
    HelloReply other = {};
    reinterpret_cast<uint8_t*>(&other)[i] ^= 1;
    EXPECT_FALSE(same(server, server_proof(key, example(), other))) << i;
  }
}

TEST(Auth, ARegionsSecretIsReadableWithTheKeyOnly) {
  HelloReply reply = {};
  memset(reply.secret, 9, sizeof reply.secret);
  const HelloReply clear = reply;
  mask_secret(key_of_token("open sesame"), example(), &reply);
  EXPECT_FALSE(same_secret(clear.secret, reply.secret, kSecretBytes));
  HelloReply wrong = reply;
  mask_secret(key_of_token("open barley"), example(), &wrong);
  EXPECT_FALSE(same_secret(clear.secret, wrong.secret, kSecretBytes));
  mask_secret(key_of_token("open sesame"), example(), &reply);
  EXPECT_TRUE(same_secret(clear.secret, reply.secret, kSecretBytes));
}

TEST(Auth, SecretsAreComparedWhole) {
  uint8_t a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4};
  EXPECT_TRUE(same_secret(a, b, 4));
  b[3] = 5;
  EXPECT_FALSE(same_secret(a, b, 4));
  EXPECT_TRUE(same_secret(a, b, 3));
}

}  // namespace
}  // namespace farside::wire
