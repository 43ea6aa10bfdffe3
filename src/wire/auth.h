// How client and server prove to each other that they know a key, without sending it: HMAC-SHA-256 of the greeting and
// of random numbers of both. A proof is of no use on another connection, nor for another request, nor to the other
// side. Pure functions: thread-safe, async-signal-safe.
#pragma once
#include <string_view>

#include "wire/protocol.h"

namespace farside::wire {

// A token, or the secret of a region.
struct Key {
  uint8_t bytes[kMaxToken] = {};
  size_t size = 0;
};
Key key_of_token(std::string_view token);  // at most kMaxToken bytes of it
Key key_of_secret(const uint8_t* secret);  // kSecretBytes

// What both sides know of a connection when they prove.
struct Greeting {
  HelloRequest hello;
  Challenge challenge;
};

Proof client_proof(const Key& key, const Greeting& greeting);
// reply: without its proof. The secret in it is encrypted already.
Proof server_proof(const Key& key, const Greeting& greeting, const HelloReply& reply);

// Encrypts the secret in a reply, or decrypts it: the second call undoes the first.
void mask_secret(const Key& key, const Greeting& greeting, HelloReply* reply);

// Compares in constant time.
bool same_secret(const void* a, const void* b, size_t bytes);

}  // namespace farside::wire
