#include "transport/file/xts.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstring>
#include <random>
#include <vector>

namespace farside::transport {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  Bytes out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// The same by OpenSSL.
Bytes reference(const Bytes& key, uint64_t unit, const Bytes& plain) {
  unsigned char tweak[16] = {};
  memcpy(tweak, &unit, sizeof unit);
  Bytes out(plain.size());
  int written = 0;
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex(context, EVP_aes_256_xts(), nullptr, reinterpret_cast<const unsigned char*>(key.data()), tweak);
  EVP_EncryptUpdate(context, reinterpret_cast<unsigned char*>(out.data()), &written,
                    reinterpret_cast<const unsigned char*>(plain.data()), static_cast<int>(plain.size()));
  EVP_CIPHER_CTX_free(context);
  EXPECT_EQ(static_cast<size_t>(written), plain.size());
  return out;
}

TEST(XtsCipher, AgreesWithOpenSsl) {
  if (!XtsCipher::is_supported()) GTEST_SKIP() << "this processor has no AES instructions";
  for (unsigned seed = 1; seed <= 50; seed++) {
    Bytes key = random_bytes(XtsCipher::kKeyBytes, seed), plain = random_bytes(seed % 2 ? 4096 : 512, seed + 1000);
    uint64_t unit = seed == 1 ? 0 : uint64_t{0x9e3779b97f4a7c15} * seed;
    XtsCipher cipher(reinterpret_cast<const uint8_t*>(key.data()));
    Bytes out(plain.size());
    cipher.encrypt(unit, plain.data(), out.data(), plain.size());
    ASSERT_EQ(out, reference(key, unit, plain)) << seed;
    cipher.decrypt(unit, out.data(), out.size());
    ASSERT_EQ(out, plain) << seed;
  }
}

TEST(XtsCipher, UnitsDiffer) {
  if (!XtsCipher::is_supported()) GTEST_SKIP() << "this processor has no AES instructions";
  Bytes key = random_bytes(XtsCipher::kKeyBytes, 7), plain(4096), one(4096), two(4096);
  XtsCipher cipher(reinterpret_cast<const uint8_t*>(key.data()));
  cipher.encrypt(1, plain.data(), one.data(), 4096);
  cipher.encrypt(2, plain.data(), two.data(), 4096);
  EXPECT_NE(one, two);
  EXPECT_NE(memcmp(one.data(), one.data() + 16, 16), 0);  // equal blocks of a page differ as well
}

}  // namespace
}  // namespace farside::transport
