// The load of kv_server: kConnections clients, each a fiber. They store every key, with 16 requests in flight each.
// Then they send requests by Zipf's law with skew 0.99, one in flight each, every twentieth a SET. Every value depends
// on its key and a version, and is checked completely. Prints the line of JSON that `farside bench all` reads; ends
// with status 1 at the first wrong response.
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <farside/fiber.hpp>

#include "kv_store.h"

namespace farside::apps {
namespace {

constexpr unsigned kConnections = 32;
constexpr double kSkew = 0.99;
constexpr unsigned kBatch = 16;
constexpr uint64_t kSetEvery = 20;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "kv_load: %s\n", what);
  exit(1);
}

struct Value {
  uint64_t words[Store::kMaxValue / 8];
  Value(uint64_t key, uint64_t version) {
    words[0] = version;
    for (uint64_t i = 1; i < std::size(words); i++) words[i] = mix(key * 64 + i) ^ version;
  }
  std::string_view text() const { return {reinterpret_cast<const char*>(words), sizeof words}; }
};

std::string key_text(uint64_t key) {
  char text[Store::kMaxKey];
  return {text, static_cast<size_t>(snprintf(text, sizeof text, "key:%016lx", mix(key)))};
}

class Client {
 public:
  explicit Client(const char* path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {AF_UNIX, {}};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (farside_fiber_connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) fail("cannot connect");
  }
  ~Client() { farside_fiber_close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void set(uint64_t first, uint64_t last, uint64_t version) {
    std::string requests;
    for (uint64_t key = first; key < last; key++) {
      requests += "set " + key_text(key) + " 0 0 " + std::to_string(Store::kMaxValue) + "\r\n";
      requests += Value(key, version).text();
      requests += "\r\n";
    }
    send(requests);
    for (uint64_t key = first; key < last; key++) expect("STORED\r\n");
  }

  void get(uint64_t key) {
    std::string name = key_text(key);
    send("get " + name + "\r\n");
    expect("VALUE " + name + " 0 " + std::to_string(Store::kMaxValue) + "\r\n");
    uint64_t version;
    receive(Store::kMaxValue);
    memcpy(&version, in_.data(), sizeof version);
    expect(Value(key, version).text());
    expect("\r\nEND\r\n");
  }

 private:
  void send(std::string_view text) {
    if (farside_fiber_write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      fail("the server closed the connection");
  }
  void receive(size_t bytes) {
    char more[16384];
    while (in_.size() < bytes) {
      ssize_t n = farside_fiber_read(fd_, more, sizeof more);
      if (n <= 0) fail("the server closed the connection");
      in_.append(more, static_cast<size_t>(n));
    }
  }
  void expect(std::string_view text) {
    receive(text.size());
    if (!in_.starts_with(text)) fail("the server returned a wrong response");
    in_.erase(0, text.size());
  }

  int fd_;
  std::string in_;
};

class Load {
 public:
  Load(const char* path, const Arguments& a)
      : path_(path),
        a_(a),
        keys_(Store::capacity_for(a.size)),
        requests_(a.operations ? a.operations : 2 * keys_),
        zipf_(keys_, kSkew),
        latencies_(requests_) {}

  void run() {
    std::vector<std::unique_ptr<Client>> clients;
    for (unsigned c = 0; c < kConnections; c++) clients.push_back(std::make_unique<Client>(path_));
    Stopwatch filling;
    on_each(clients, keys_, [&](Client& client, uint64_t begin, uint64_t end) {
      for (uint64_t key = begin; key < end; key += kBatch) client.set(key, std::min(key + kBatch, end), 0);
    });
    double fill_s = filling.seconds();
    Stopwatch running;
    on_each(clients, requests_, [&](Client& client, uint64_t begin, uint64_t end) {
      for (uint64_t r = begin; r < end; r++) issue(client, r);
    });
    double run_s = running.seconds();
    report("kv_server", a_, fill_s, run_s, requests_, checksum_, latencies_.text());
  }

 private:
  // work(client, begin, end) for each client's part of [0, count).
  template <typename Work>
  void on_each(std::vector<std::unique_ptr<Client>>& clients, uint64_t count, Work work) {
    std::vector<fiber> fibers;
    for (uint64_t c = 0; c < kConnections; c++) {
      fibers.emplace_back([&, c] { work(*clients[c], count * c / kConnections, count * (c + 1) / kConnections); });
    }
  }

  void issue(Client& client, uint64_t request) {
    uint64_t random = mix(mix(a_.seed) + request);
    uint64_t key = mix(zipf_.rank(unit(random))) % keys_;  // popular keys are not neighbours
    Stopwatch watch;
    if (request % kSetEvery == 0) client.set(key, key + 1, request);
    else client.get(key);
    latencies_.put(request, watch.seconds());
    checksum_ += mix(key + request);
  }

  const char* path_;
  Arguments a_;
  uint64_t keys_, requests_;
  Zipf zipf_;
  Latencies latencies_;
  uint64_t checksum_ = 0;  // of all requests with a correct response; one worker runs all fibers
};

}  // namespace
}  // namespace farside::apps

// kv_load SOCKET [options of kv_server]
int main(int argc, char** argv) {
  using namespace farside::apps;
  if (argc < 2) usage(argv[0], "is started by kv_server");
  Load load(argv[1], parse(argc - 1, argv + 1));
  farside::run_fibers(1, [&] { load.run(); });
}
