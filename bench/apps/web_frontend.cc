// A synthetic web front end as in AIFM 8.1: a request looks up 32 keys in a hash table, reads one object of 8 KB,
// encrypts it and compresses the result. Keys and objects are drawn by Zipf's law with skew 0.8. An operation is one
// request. Three hinted lines: the table's entries at look-up and insertion, and the objects, which are evicted first
// (priority 3) since the table is used far more often.
#include <openssl/evp.h>
#include <snappy-c.h>

#include "app.h"

namespace farside::apps {
namespace {

constexpr unsigned kKeysInRequest = 32;
constexpr double kSkew = 0.8;
constexpr double kTableShare = 0.4;  // of the data; the rest is objects

struct Object {
  static constexpr uint64_t kBytes = 8192;
  unsigned char bytes[kBytes];
};

// Open addressing with linear steps; half of the entries are used. Keys are never 0.
class HashTable {
 public:
  explicit HashTable(uint64_t bytes)
      : mask_((uint64_t{1} << log2_of(bytes / sizeof(Entry))) - 1), entries_(make_array<Entry>(mask_ + 1)) {
    memset(entries_.get(), 0, (mask_ + 1) * sizeof(Entry));
  }
  uint64_t keys() const { return (mask_ + 1) / 2; }
  static uint64_t key_of(uint64_t number) { return mix(number) | 1; }

  void insert(uint64_t key, uint64_t value) {
    uint64_t at = mix(key) & mask_;
    hint(&entries_[at], sizeof(Entry), FARSIDE_WRITE);
    while (entries_[at].key != 0 && entries_[at].key != key) at = (at + 1) & mask_;
    entries_[at] = {key, value};
  }

  uint64_t find(uint64_t key) const {
    for (uint64_t at = mix(key) & mask_;; at = (at + 1) & mask_) {
      hint(&entries_[at], sizeof(Entry), FARSIDE_READ);
      if (entries_[at].key == key) return entries_[at].value;
      if (entries_[at].key == 0) return 0;
    }
  }

 private:
  struct Entry {
    uint64_t key, value;
  };
  static unsigned log2_of(uint64_t n) {
    unsigned bits = 0;
    while (n >> (bits + 1)) bits++;
    return bits;
  }
  uint64_t mask_;
  Array<Entry> entries_;
};

// The buffers with which one thread serves requests.
class Worker {
 public:
  Worker() : cipher_(EVP_CIPHER_CTX_new()), compressed_(snappy_max_compressed_length(Object::kBytes)) {}
  ~Worker() { EVP_CIPHER_CTX_free(cipher_); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Serves a request, and returns a digest of the response.
  uint64_t process(const HashTable& table, const Object* objects, const uint64_t* keys, uint64_t object) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < kKeysInRequest; i++) sum += table.find(keys[i]);
    const Object& o = objects[object];
    encrypt(o);
    size_t bytes = compressed_.size();
    snappy_compress(reinterpret_cast<const char*>(encrypted_), sizeof encrypted_, compressed_.data(), &bytes);
    uint64_t last;
    memcpy(&last, encrypted_ + sizeof encrypted_ - 8, 8);
    return mix(sum ^ mix(last + bytes));
  }

 private:
  void encrypt(const Object& o) {
    static constexpr unsigned char kKey[16] = {1, 2, 3, 4, 5, 6, 7, 8}, kStart[16] = {};
    int bytes = 0;
    hint(&o, sizeof o, FARSIDE_READ | FARSIDE_PRIORITY(3));
    EVP_EncryptInit_ex(cipher_, EVP_aes_128_cbc(), nullptr, kKey, kStart);
    EVP_CIPHER_CTX_set_padding(cipher_, 0);
    EVP_EncryptUpdate(cipher_, encrypted_, &bytes, o.bytes, static_cast<int>(sizeof o.bytes));
  }

  EVP_CIPHER_CTX* cipher_;
  unsigned char encrypted_[Object::kBytes];
  std::vector<char> compressed_;
};

class FrontEnd : public App {
 public:
  explicit FrontEnd(const Arguments& a)
      : a_(a),
        table_(static_cast<uint64_t>(static_cast<double>(a.size) * kTableShare)),
        object_count_(static_cast<uint64_t>(static_cast<double>(a.size) * (1 - kTableShare)) / Object::kBytes),
        objects_(make_array<Object>(object_count_)),
        key_zipf_(table_.keys(), kSkew),
        object_zipf_(object_count_, kSkew),
        latencies_(a.operations ? a.operations : 2 * object_count_) {
    for (uint64_t i = 0; i < table_.keys(); i++) table_.insert(HashTable::key_of(i), mix(a.seed ^ i));
    in_parallel(a.threads, object_count_, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) fill(objects_[i], i);
    });
  }

  uint64_t run() {
    checksum_ = sum_in_parallel(a_.threads, latencies_.count(), [&](uint64_t begin, uint64_t end) {
      Worker worker;
      uint64_t sum = 0;
      for (uint64_t r = begin; r < end; r++) {
        Stopwatch watch;
        sum += serve(worker, r);
        latencies_.put(r, watch.seconds());
      }
      return sum;
    });
    return latencies_.count();
  }

  uint64_t checksum() const { return checksum_; }
  std::string members(double) { return latencies_.text(); }

 private:
  // Half of an object repeats, as markup does.
  void fill(Object& o, uint64_t number) {
    for (uint64_t i = 0; i < Object::kBytes; i += 8) {
      uint64_t value = i % 16 ? 0x2074736c3c3e6c69 : number_of(a_.seed, number * 1024 + i / 8);
      memcpy(o.bytes + i, &value, 8);
    }
  }

  uint64_t serve(Worker& worker, uint64_t request) {
    uint64_t keys[kKeysInRequest], random = mix(mix(a_.seed) + request * (kKeysInRequest + 1));
    for (uint64_t& key : keys) {
      random = mix(random);
      // Popular keys and objects are not neighbours.
      key = HashTable::key_of(mix(key_zipf_.rank(unit(random))) % table_.keys());
    }
    uint64_t object = mix(object_zipf_.rank(unit(mix(random)))) % object_count_;
    return worker.process(table_, objects_.get(), keys, object);
  }

  Arguments a_;
  HashTable table_;
  uint64_t object_count_;
  Array<Object> objects_;
  Zipf key_zipf_, object_zipf_;
  Latencies latencies_;
  uint64_t checksum_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<FrontEnd>("web_frontend", parse(argc, argv));
}
