// A web front end (AIFM 8.1.1): a request looks up 32 keys in a hash table, computes an index from the values, reads
// that element of 8 KiB, encrypts it (AES-CTR) and compresses the result (Snappy). Keys are drawn by Zipf's law with
// skew 0.8. An operation is one request. The elements are not used again soon (non-temporal, or priority 3), since the
// table is used far more often.
#include <openssl/evp.h>
#include <snappy-c.h>

#include "fibers.h"
#include "kinds.h"

namespace farside::apps {
namespace {

constexpr unsigned kKeysInRequest = 32;
constexpr double kSkew = 0.8;
constexpr double kTableShare = 0.385;  // of the data, as in the paper: 10 of 26 GB
constexpr uint64_t kPairBytes = 80;    // with the table's own words

struct User {
  uint64_t words[4];
};
struct Element {
  static constexpr uint64_t kBytes = 8192;
  unsigned char bytes[kBytes];
};

uint64_t key_of(uint64_t number) { return mix(number) | 1; }
uint64_t share_of(uint64_t bytes, double share) { return static_cast<uint64_t>(static_cast<double>(bytes) * share); }

// Half of an element repeats, as markup does.
void fill(Element& element, uint64_t seed, uint64_t number) {
  for (uint64_t i = 0; i < Element::kBytes; i += 8) {
    uint64_t value = i % 16 ? 0x2074736c3c3e6c69 : number_of(seed, number * 1024 + i / 8);
    memcpy(element.bytes + i, &value, 8);
  }
}

uint64_t digest_of(const char* text, size_t bytes) {
  uint64_t digest = bytes;
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    memcpy(&word, text + at, std::min<size_t>(8, bytes - at));
    digest = (digest ^ word) * 0x9e3779b97f4a7c15;
  }
  return mix(digest);
}

// The buffers with which one fiber makes responses.
class Response {
 public:
  Response() : encrypted_(Element::kBytes), compressed_(snappy_max_compressed_length(Element::kBytes)) {
    static constexpr unsigned char kKey[16] = {1, 2, 3, 4, 5, 6, 7, 8};
    fiber_hold hold;  // OpenSSL takes locks of threads here, and none later
    cipher_ = EVP_CIPHER_CTX_new();
    EVP_EncryptInit_ex(cipher_, EVP_aes_128_ctr(), nullptr, kKey, nullptr);
  }
  ~Response() {
    fiber_hold hold;
    EVP_CIPHER_CTX_free(cipher_);
  }
  Response(const Response&) = delete;
  Response& operator=(const Response&) = delete;

  // Depends on every byte of the element.
  uint64_t digest(const Element& element) {
    encrypt(element);
    size_t bytes = compressed_.size();
    snappy_compress(encrypted_.data(), encrypted_.size(), compressed_.data(), &bytes);
    return digest_of(compressed_.data(), bytes);
  }

 private:
  void encrypt(const Element& element) {
    static constexpr unsigned char kStart[16] = {};
    int bytes = 0;
    EVP_EncryptInit_ex(cipher_, nullptr, nullptr, nullptr, kStart);
    EVP_EncryptUpdate(cipher_, reinterpret_cast<unsigned char*>(encrypted_.data()), &bytes, element.bytes,
                      Element::kBytes);
  }

  EVP_CIPHER_CTX* cipher_;
  std::vector<char> encrypted_, compressed_;
};

template <typename Kind>
class FrontEnd : public App {
 public:
  explicit FrontEnd(const Arguments& a)
      : a_(a),
        keys_(share_of(a.size, kTableShare) / kPairBytes),
        elements_(share_of(a.size, 1 - kTableShare) / Element::kBytes),
        zipf_(keys_, kSkew),
        latencies_(a.operations ? a.operations : elements_.size() / 2) {
    users_.reserve(keys_);
    for (uint64_t i = 0; i < keys_; i++) users_.try_emplace(key_of(i), User{{mix(a.seed ^ i), i}});
    in_parallel(a.threads, elements_.size(), [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) {
        typename Kind::Scope scope;
        fill(elements_.get_mut(i, scope), a_.seed, i);
      }
    });
  }

  uint64_t run() {
    checksum_ = sum_on_fibers(a_.threads, a_.fibers, latencies_.count(), [&](uint64_t, uint64_t begin, uint64_t end) {
      Response response;
      uint64_t sum = 0;
      for (uint64_t r = begin; r < end; r++) {
        Stopwatch watch;
        sum += serve(response, r);
        latencies_.put(r, watch.seconds());
      }
      return sum;
    });
    return latencies_.count();
  }

  uint64_t checksum() const { return checksum_; }
  std::string members(double) { return latencies_.text(); }

 private:
  uint64_t serve(Response& response, uint64_t request) const {
    uint64_t random = mix(mix(a_.seed) + request * (kKeysInRequest + 1)), sum = 0;
    for (unsigned i = 0; i < kKeysInRequest; i++) sum += look_up(random = mix(random));
    // The element is drawn by Zipf's law, too: the rank is that of the last key.
    uint64_t element = mix(zipf_.rank(unit(mix(random)))) % elements_.size();
    typename Kind::Scope scope;
    return mix(sum ^ response.digest(elements_.template get<true>(element, scope)));
  }

  // Popular keys are not neighbours.
  uint64_t look_up(uint64_t random) const {
    uint64_t key = key_of(scatter(zipf_.rank(unit(random)), keys_));
    typename Kind::Scope scope;
    return users_.get(key, scope)->words[0];
  }

  Arguments a_;
  uint64_t keys_;
  typename Kind::template Map<uint64_t, User> users_;
  typename Kind::template Elements<Element> elements_;
  Zipf zipf_;
  Latencies latencies_;
  uint64_t checksum_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  return farside::apps::run_over_types<farside::apps::FrontEnd>("web_frontend", argc, argv);
}
