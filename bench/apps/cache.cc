// memcached's text protocol on fibers: get, set and delete of values of 16 to 1024 bytes, keys by Zipf's law with skew
// 0.99 (Atlas 5.2, Eden 5.3.3, MAGE 6.3). Clients and server are one process: what is measured is the store, not
// sockets. Each fiber is one client with its own share of the keys: it makes requests as text, the server parses them
// and makes replies as text, and the client checks every byte of each reply against the version that it stored last. 90
// % get, 8 % set, 2 % delete; a get that misses is followed by a set. An operation is one request.
#include "cache_store.h"
#include "fibers.h"

namespace farside::apps {
namespace {

constexpr double kSkew = 0.99;
constexpr uint64_t kItemBytes = 256;         // of a key, its value and what the store needs, on average
constexpr uint64_t kSets = 8, kDeletes = 2;  // percent

// ---- The server: a request and its reply are texts of the protocol ----

template <typename Kind>
class Server {
 public:
  // `reply` is replaced. False: the request is not valid.
  bool handle(std::string_view request, std::string* reply) {
    size_t line_end = request.find("\r\n"), word_end = request.find(' ');
    if (line_end == request.npos || word_end > line_end) return false;
    std::string_view command = request.substr(0, word_end),
                     rest = request.substr(word_end + 1, line_end - word_end - 1);
    if (command == "get") return get(rest, reply);
    if (command == "delete") return erase(rest, reply);
    return command == "set" && set(rest, request.substr(line_end + 2), reply);
  }

 private:
  static bool parse_key(std::string_view text, Key* key) {
    if (text.empty() || text.size() > sizeof key->text) return false;
    memcpy(key->text, text.data(), text.size());
    return true;
  }

  bool get(std::string_view text, std::string* reply) {
    Key key;
    std::string value;
    if (!parse_key(text, &key)) return false;
    reply->clear();
    if (store_.get(key, &value)) {
      reply->append("VALUE ").append(text).append(" 0 ").append(std::to_string(value.size()));
      reply->append("\r\n").append(value).append("\r\n");
    }
    reply->append("END\r\n");
    return true;
  }

  bool erase(std::string_view text, std::string* reply) {
    Key key;
    if (!parse_key(text, &key)) return false;
    *reply = store_.erase(key) ? "DELETED\r\n" : "NOT_FOUND\r\n";
    return true;
  }

  // "key flags lifetime bytes", then the value; flags and lifetime are ignored.
  bool set(std::string_view words, std::string_view data, std::string* reply) {
    Key key;
    if (!parse_key(words.substr(0, words.find(' ')), &key)) return false;
    uint64_t bytes = 0;
    std::string length(words.substr(words.rfind(' ') + 1));
    if (!parse_value(length.c_str(), bytes) || bytes > kMaxBlob || data.size() != bytes + 2) return false;
    store_.set(key, data.substr(0, bytes));
    *reply = "STORED\r\n";
    return true;
  }

  CacheStore<Kind> store_;
};

// ---- A client: keys begin .. begin + versions.size() - 1 are its own ----

class Client {
 public:
  Client(uint64_t seed, uint64_t begin, uint64_t end) : seed_(seed), begin_(begin), versions_(end - begin) {}

  template <typename Kind>
  void fill(Server<Kind>& server) {
    for (uint64_t i = 0; i < versions_.size(); i++) set(server, i);
  }

  // Sends requests, whose numbers of all clients are begin to end. The sum of digests of what get returned.
  template <typename Kind>
  uint64_t run(Server<Kind>& server, uint64_t begin, uint64_t end, Latencies* latencies) {
    Zipf zipf(versions_.size(), kSkew);
    uint64_t sum = 0;
    for (uint64_t r = 0; r < end - begin; r++) {
      Stopwatch watch;
      uint64_t random = mix(number_of(seed_ + begin_, r));
      uint64_t i = scatter(zipf.rank(unit(mix(random))), versions_.size()), kind = random % 100;
      if (kind < kSets) set(server, i);
      else if (kind < kSets + kDeletes) erase(server, i);
      else sum += get(server, i);
      latencies->put(begin + r, watch.seconds());
    }
    return sum;
  }
  bool wrong() const { return wrong_; }

 private:
  std::string key(uint64_t i) const {
    char text[32];
    snprintf(text, sizeof text, "key-%016lx", mix(begin_ + i));
    return text;
  }

  // 60 % have up to 64 bytes, 30 % up to 256, 10 % up to 1024.
  std::string value(uint64_t i) const {
    uint64_t random = mix(mix(begin_ + i) + versions_[i]), tenth = random % 10;
    uint64_t least = tenth < 6 ? 16 : tenth < 9 ? 65 : 257, most = tenth < 6 ? 64 : tenth < 9 ? 256 : kMaxBlob;
    std::string made(least + (random >> 32) % (most - least + 1), 'x');
    for (size_t at = 0; at + 8 <= made.size(); at += 16, random = mix(random)) memcpy(&made[at], &random, 8);
    return made;
  }

  template <typename Kind>
  void expect(Server<Kind>& server, const std::string& request, std::string_view wanted) {
    if (!server.handle(request, &reply_) || reply_ != wanted) wrong_ = true;
  }

  template <typename Kind>
  void set(Server<Kind>& server, uint64_t i) {
    versions_[i] = ++last_version_;
    std::string data = value(i);
    expect(server, "set " + key(i) + " 0 0 " + std::to_string(data.size()) + "\r\n" + data + "\r\n", "STORED\r\n");
  }

  template <typename Kind>
  void erase(Server<Kind>& server, uint64_t i) {
    expect(server, "delete " + key(i) + "\r\n", versions_[i] ? "DELETED\r\n" : "NOT_FOUND\r\n");
    versions_[i] = 0;
  }

  template <typename Kind>
  uint64_t get(Server<Kind>& server, uint64_t i) {
    if (versions_[i] == 0) {
      expect(server, "get " + key(i) + "\r\n", "END\r\n");
      return set(server, i), 1;
    }
    std::string data = value(i);
    expect(server, "get " + key(i) + "\r\n",
           "VALUE " + key(i) + " 0 " + std::to_string(data.size()) + "\r\n" + data + "\r\nEND\r\n");
    return hash_of(reply_);
  }

  uint64_t seed_, begin_;
  std::vector<uint32_t> versions_;  // 0: the key is not stored
  uint32_t last_version_ = 0;
  bool wrong_ = false;
  std::string reply_;
};

template <typename Kind>
class Cache : public App {
 public:
  explicit Cache(const Arguments& a) : a_(a), latencies_(a.operations ? a.operations : a.size / kItemBytes) {
    uint64_t keys = a.size / kItemBytes;
    for (uint64_t f = 0; f < a.fibers; f++)
      clients_.push_back(std::make_unique<Client>(a.seed, keys * f / a.fibers, keys * (f + 1) / a.fibers));
    each([this](Client& client, uint64_t, uint64_t) {
      client.fill(server_);
      return 0;
    });
  }
  uint64_t run() {
    checksum_ = each(
        [this](Client& client, uint64_t begin, uint64_t end) { return client.run(server_, begin, end, &latencies_); });
    return latencies_.count();
  }
  const char* wrong() const {
    bool wrong = std::any_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->wrong(); });
    return wrong ? "a reply is not what the client stored" : nullptr;
  }
  uint64_t checksum() const { return checksum_; }
  std::string members(double) { return latencies_.text(); }

 private:
  // The sum of work(client, begin, end) of all clients, each with its requests.
  template <typename Work>
  uint64_t each(Work work) {
    return sum_on_fibers(a_.threads, a_.fibers, latencies_.count(), [&](uint64_t fiber, uint64_t begin, uint64_t end) {
      return work(*clients_[fiber], begin, end);
    });
  }

  Arguments a_;
  Latencies latencies_;
  Server<Kind> server_;
  std::vector<std::unique_ptr<Client>> clients_;
  uint64_t checksum_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) { return farside::apps::run_over_types<farside::apps::Cache>("cache", argc, argv); }
