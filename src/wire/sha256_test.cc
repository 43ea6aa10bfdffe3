#include "wire/sha256.h"

#include <gtest/gtest.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace farside::wire {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string hex(const Digest& digest) {
  std::string text;
  for (uint8_t b : digest) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(bytes(text));
  return hex(hash.finish());
}

std::string hmac(std::string_view key, std::string_view text) {
  HmacSha256 mac(bytes(key));
  mac.update(bytes(text));
  return hex(mac.finish());
}

// RFC 6234, 8.5: TEST1, TEST2_1, TEST3, TEST4.
TEST(Sha256, VectorsOfRfc6234) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string digits;
  for (int i = 0; i < 80; i++) digits += "01234567";
  EXPECT_EQ(sha256(digits), "594847328451bdfa85056225462cc1d867d877fb388df0ce35f25ab5562bfbb5");
}

// RFC 4231, 4.2 to 4.8; case 5 is truncated there.
TEST(HmacSha256, VectorsOfRfc4231) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char c = 1; c <= 25; c++) counting += c;
  EXPECT_EQ(hmac(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(hmac(std::string(131, '\xaa'),
                 "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
                 "to be hashed before being used by the HMAC algorithm."),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST(HmacSha256, AgreesWithOpenssl) {
  std::mt19937_64 random(3);
  auto text = [&](size_t most) {
    std::string out(random() % most, 0);
    for (char& c : out) c = static_cast<char>(random());
    return out;
  };
  for (int i = 0; i < 500; i++) {
    std::string key = text(200), data = text(300);
    Digest expected;
    auto* at = reinterpret_cast<const unsigned char*>(data.data());
    SHA256(at, data.size(), expected.data());
    EXPECT_EQ(sha256(data), hex(expected));
    HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), at, data.size(), expected.data(), nullptr);
    HmacSha256 mac(bytes(key));  // in two pieces
    size_t split = data.empty() ? 0 : random() % data.size();
    mac.update(bytes(data).first(split));
    mac.update(bytes(data).subspan(split));
    EXPECT_EQ(hex(mac.finish()), hex(expected));
  }
}

}  // namespace
}  // namespace farside::wire
