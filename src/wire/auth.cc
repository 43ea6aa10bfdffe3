#include "wire/auth.h"

#include <algorithm>
#include <cstring>

#include "wire/codec.h"
#include "wire/sha256.h"

namespace farside::wire {
namespace {

// The purposes of a code. None is the beginning of another one.
constexpr std::string_view kOfClient = "farside client", kOfServer = "farside server", kOfSecret = "farside region";

HmacSha256 begin(const Key& key, std::string_view purpose, const Greeting& greeting) {
  HmacSha256 mac(std::as_bytes(std::span(key.bytes, key.size)));
  mac.update(std::as_bytes(std::span(purpose)));
  mac.update(bytes_of(greeting.hello));
  mac.update(bytes_of(greeting.challenge));
  return mac;
}

Proof finish(HmacSha256* mac) {
  Digest digest = mac->finish();
  Proof proof;
  static_assert(sizeof digest == sizeof proof);
  memcpy(&proof, digest.data(), sizeof proof);
  return proof;
}

Key key_of(const void* bytes, size_t size) {
  Key key;
  key.size = std::min(size, sizeof key.bytes);
  if (key.size > 0) memcpy(key.bytes, bytes, key.size);  // without a token, bytes may be null
  return key;
}

}  // namespace

Key key_of_token(std::string_view token) { return key_of(token.data(), token.size()); }
Key key_of_secret(const uint8_t* secret) { return key_of(secret, kSecretBytes); }

Proof client_proof(const Key& key, const Greeting& greeting) {
  HmacSha256 mac = begin(key, kOfClient, greeting);
  return finish(&mac);
}

Proof server_proof(const Key& key, const Greeting& greeting, const HelloReply& reply) {
  HmacSha256 mac = begin(key, kOfServer, greeting);
  mac.update(bytes_of(reply).first(offsetof(HelloReply, proof)));
  return finish(&mac);
}

void mask_secret(const Key& key, const Greeting& greeting, HelloReply* reply) {
  HmacSha256 mac = begin(key, kOfSecret, greeting);
  Digest mask = mac.finish();
  for (size_t i = 0; i < kSecretBytes; i++) reply->secret[i] ^= mask[i];
}

bool same_secret(const void* a, const void* b, size_t bytes) {
  auto *x = static_cast<const volatile uint8_t*>(a), *y = static_cast<const volatile uint8_t*>(b);
  uint8_t difference = 0;
  for (size_t i = 0; i < bytes; i++) difference = static_cast<uint8_t>(difference | (x[i] ^ y[i]));
  return difference == 0;
}

}  // namespace farside::wire
