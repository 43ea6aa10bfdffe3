#include "wire/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace farside::wire {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load(const uint8_t* at) {
  uint32_t v;
  memcpy(&v, at, sizeof v);
  return __builtin_bswap32(v);
}

void store(uint8_t* at, uint32_t v) {
  v = __builtin_bswap32(v);
  memcpy(at, &v, sizeof v);
}

}  // namespace

// RFC 6234, 6.2.
void Sha256::add_block(const uint8_t* block) {
  using std::rotr;
  uint32_t w[64];
  for (size_t t = 0; t < 16; t++) w[t] = load(block + 4 * t);
  for (size_t t = 16; t < 64; t++) {
    uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; t++) {
    uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25), chosen = (e & f) ^ (~e & g);
    uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    uint32_t t1 = h + s1 + chosen + kRound[t] + w[t], t2 = s0 + majority;
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t added[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); i++) state_[i] += added[i];
}

void Sha256::update(std::span<const std::byte> data) {
  auto* at = reinterpret_cast<const uint8_t*>(data.data());
  for (size_t left = data.size(); left > 0;) {
    size_t filled = bytes_ % kBlockBytes, taken = std::min(left, kBlockBytes - filled);
    memcpy(block_ + filled, at, taken);
    at += taken, left -= taken, bytes_ += taken;
    if (bytes_ % kBlockBytes == 0) add_block(block_);
  }
}

Digest Sha256::finish() {
  constexpr size_t kLengthBytes = 8;
  uint64_t bits = bytes_ * 8;
  size_t filled = bytes_ % kBlockBytes;
  block_[filled++] = 0x80;
  if (filled > kBlockBytes - kLengthBytes) {
    memset(block_ + filled, 0, kBlockBytes - filled);
    add_block(block_);
    filled = 0;
  }
  memset(block_ + filled, 0, kBlockBytes - kLengthBytes - filled);
  store(block_ + 56, static_cast<uint32_t>(bits >> 32));
  store(block_ + 60, static_cast<uint32_t>(bits));
  add_block(block_);
  Digest digest;
  for (size_t i = 0; i < state_.size(); i++) store(&digest[4 * i], state_[i]);
  return digest;
}

HmacSha256::HmacSha256(std::span<const std::byte> key) {
  std::array<std::byte, Sha256::kBlockBytes> pad = {};
  Digest hashed;
  if (key.size() > pad.size()) {
    Sha256 hash;
    hash.update(key);
    hashed = hash.finish();
    key = std::as_bytes(std::span(hashed));
  }
  std::copy(key.begin(), key.end(), pad.begin());
  constexpr std::byte kInner{0x36}, kOuter{0x5c};
  for (std::byte& b : pad) b ^= kInner;
  inner_.update(pad);
  for (std::byte& b : pad) b ^= kInner ^ kOuter;
  outer_.update(pad);
}

Digest HmacSha256::finish() {
  Digest inner = inner_.finish();
  outer_.update(std::as_bytes(std::span(inner)));
  return outer_.finish();
}

}  // namespace farside::wire
