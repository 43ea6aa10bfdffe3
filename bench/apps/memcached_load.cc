// A load for servers that speak memcached's text protocol. It starts the server, stores every key, measures the
// capacity in a closed loop, and then, with the mix of MAGE 6.3 (mostly GET, keys by Zipf's law), sends requests at the
// times of a Poisson process, at each of the given rates. A latency is measured from the time at which the request was
// due, even if it was sent later, so that a stall of the server counts for all requests that it delays. Every value
// contains a version and is checked completely. An operation is one request of the open loop. No hints: memcached is
// Debian's.
//
//   memcached_load --size 1G --rates 20000,40000        # starts `memcached`; under `farside run` its memory is far
//   memcached_load --server "farside run --local 25% -- memcached" --sweep on
//   memcached_load --connect 10.0.0.2:11211             # or a Unix socket's path: a server that runs already
//
// kv_server starts it for a closed loop alone (--closed on), whose requests are then the operations.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <sstream>

#include "app.h"

namespace farside::apps {
namespace {

constexpr double kSkew = 0.99;
constexpr double kSweep[] = {0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95};  // of the capacity
constexpr unsigned kFillWindow = 16;                               // requests in flight on a connection
constexpr uint64_t kItemOverhead = 88;  // bytes that memcached needs beside a value: header, key, rounding
constexpr uint64_t kMaxOperations = 100'000;

struct Settings {
  Arguments common;
  uint64_t value_bytes = 512, set_every = 500, connections = 32, clients = 1;
  uint64_t key_count = 0;  // 0: as many as the size holds
  std::string server = "memcached", connect, name = "memcached_load";
  std::vector<double> rates;  // empty if the capacity is swept
  bool sweep = false, closed = false;
  uint64_t own_server = 0;  // its process, set by start_server()

  uint64_t keys() const { return key_count ? key_count : common.size / (value_bytes + kItemOverhead); }
  uint64_t operations() const {
    if (common.operations) return common.operations;
    return closed ? 2 * keys() : std::min(2 * keys(), kMaxOperations);
  }
};

[[noreturn]] void fail(const std::string& what) {
  fprintf(stderr, "memcached_load: %s\n", what.c_str());
  exit(1);
}

// --- Requests ---

struct Request {
  uint64_t key, version;
  bool is_set;
};

std::string key_text(uint64_t key) {
  char text[32];
  return {text, static_cast<size_t>(snprintf(text, sizeof text, "key:%016lx", mix(key)))};
}

// Requests by number. Those from 1 on are random; a SET stores its number as the version.
class Workload {
 public:
  explicit Workload(const Settings& s) : s_(s), zipf_(s.keys(), kSkew) {}

  static Request store(uint64_t key) { return {key, 0, true}; }
  Request draw(uint64_t number) const {
    uint64_t random = mix(mix(s_.common.seed) + number);
    uint64_t key = scatter(zipf_.rank(unit(random)), s_.keys());
    return {key, number, s_.set_every && mix(random) % s_.set_every == 0};
  }

  // Seconds between two requests of a Poisson process.
  double gap(uint64_t number, double rate) const {
    return -std::log(1 - unit(mix(mix(s_.common.seed + 1) + number))) / rate;
  }

  std::string value(uint64_t key, uint64_t version) const {
    std::string value(s_.value_bytes, 0);
    for (size_t i = 0; i < value.size(); i += 8) {
      uint64_t word = i == 0 ? version : mix(key * 1024 + i) ^ version;
      memcpy(&value[i], &word, std::min<size_t>(8, value.size() - i));
    }
    return value;
  }
  // True if the value is one that was stored for the key.
  bool is_right(uint64_t key, std::string_view found) const {
    uint64_t version;
    memcpy(&version, found.data(), sizeof version);
    if (version != 0) {
      Request stored = draw(version);
      if (!stored.is_set || stored.key != key) return false;
    }
    return found == value(key, version);
  }

 private:
  const Settings& s_;
  Zipf zipf_;
};

// --- Connections ---

sockaddr_storage address_of(const std::string& name, socklen_t& bytes) {
  sockaddr_storage storage = {};
  if (name.find('/') != name.npos) {
    auto* local = reinterpret_cast<sockaddr_un*>(&storage);
    local->sun_family = AF_UNIX;
    snprintf(local->sun_path, sizeof local->sun_path, "%s", name.c_str());
    bytes = sizeof *local;
    return storage;
  }
  size_t colon = name.rfind(':');
  if (colon == name.npos) fail(name + " is neither host:port nor the path of a socket");
  addrinfo hints = {}, *found;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(name.substr(0, colon).c_str(), name.substr(colon + 1).c_str(), &hints, &found) != 0)
    fail(name + " has no address");
  memcpy(&storage, found->ai_addr, found->ai_addrlen);
  bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return storage;
}

// A socket, or -1.
int connect_to(const std::string& name) {
  socklen_t bytes;
  sockaddr_storage address = address_of(name, bytes);
  int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) < 0) return close(fd), -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails on a Unix socket, which is fine
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// A connection with pipelined requests; responses arrive in the order of requests.
class Connection {
 public:
  Connection(const Workload& workload, uint64_t value_bytes, int fd)
      : workload_(workload), value_bytes_(value_bytes), fd_(fd) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  size_t in_flight() const { return in_flight_.size(); }

  // due: when it should be sent.
  void enqueue(const Request& r, double due) {
    in_flight_.push_back({r, due});
    if (!r.is_set) out_ += "get " + key_text(r.key) + "\r\n";
    else out_ += "set " + head_of(r.key) + workload_.value(r.key, r.version) + "\r\n";
  }

  // False: the server takes no more at present.
  bool flush() {
    while (sent_ < out_.size()) {
      ssize_t n = send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0) fail("the server closed the connection");
      sent_ += static_cast<size_t>(n);
    }
    out_.clear();
    sent_ = 0;
    return true;
  }

  // Calls done(request, due) for each response that has arrived.
  template <typename Done>
  void receive(Done done) {
    char more[65536];
    ssize_t n = recv(fd_, more, sizeof more, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail("the server closed the connection");
    in_.append(more, static_cast<size_t>(n));
    std::string_view left = in_;
    while (!in_flight_.empty()) {
      size_t bytes = response_bytes(left, in_flight_.front().request);
      if (bytes == 0) break;
      left.remove_prefix(bytes);
      done(in_flight_.front().request, in_flight_.front().due);
      in_flight_.pop_front();
    }
    in_.erase(0, in_.size() - left.size());
  }

 private:
  struct InFlight {
    Request request;
    double due;
  };

  // SET's flags and lifetime are 0.
  std::string head_of(uint64_t key) const { return key_text(key) + " 0 0 " + std::to_string(value_bytes_) + "\r\n"; }

  // The bytes of the response; 0: it has not arrived completely.
  size_t response_bytes(std::string_view text, const Request& r) const {
    std::string head =
        r.is_set ? "STORED\r\n" : "VALUE " + key_text(r.key) + " 0 " + std::to_string(value_bytes_) + "\r\n";
    if (!text.starts_with(std::string_view(head).substr(0, text.size())))
      fail("unexpected response: " + std::string(text.substr(0, text.find('\r'))));
    constexpr std::string_view kEnd = "\r\nEND\r\n";
    size_t bytes = head.size() + (r.is_set ? 0 : value_bytes_ + kEnd.size());
    if (text.size() < bytes) return 0;
    if (!r.is_set && (!workload_.is_right(r.key, text.substr(head.size(), value_bytes_)) ||
                      text.substr(head.size() + value_bytes_, kEnd.size()) != kEnd))
      fail("the server returned a wrong value");
    return bytes;
  }

  const Workload& workload_;
  uint64_t value_bytes_;
  int fd_;
  std::string out_, in_;
  size_t sent_ = 0;  // of out_
  std::deque<InFlight> in_flight_;
};

// One thread's connections.
class Client {
 public:
  Client(const Workload& workload, const Settings& s, uint64_t connections)
      : workload_(workload), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (uint64_t c = 0; c < connections; c++) {
      int fd = connect_to(s.connect);
      if (fd < 0) fail("cannot connect to " + s.connect);
      connections_.push_back(std::make_unique<Connection>(workload, s.value_bytes, fd));
      epoll_event event = {EPOLLIN, {.ptr = connections_.back().get()}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
  }
  ~Client() { close(epoll_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Closed loop: `window` requests in flight on each connection. Sends request_of(n) for n in [begin, end), and calls
  // done(request, latency in seconds) for each response.
  template <typename RequestOf, typename Done>
  void run_closed(uint64_t begin, uint64_t end, unsigned window, RequestOf request_of, Done done) {
    Stopwatch watch;
    for (uint64_t next = begin, responses = begin; responses < end;) {
      double now = watch.seconds();
      for (auto& c : connections_) {
        while (next < end && c->in_flight() < window) c->enqueue(request_of(next++), now);
      }
      responses += wait(1, watch, done);
    }
  }

  // Open loop at `rate`.
  template <typename Done>
  void run_open(uint64_t begin, uint64_t end, double rate, Done done) {
    prctl(PR_SET_TIMERSLACK, 1);
    Stopwatch watch;
    double due = workload_.gap(begin, rate);
    for (uint64_t next = begin, responses = begin; responses < end;) {
      for (double now = watch.seconds(); next < end && due <= now; due += workload_.gap(next, rate)) {
        connections_[next % connections_.size()]->enqueue(workload_.draw(next), due);
        next++;
      }
      responses += wait(next < end ? due - watch.seconds() : 1, watch, done);
    }
  }

 private:
  // Sends pending requests, waits for responses for at most this many seconds, and calls done(request, latency) for
  // each. Returns their number.
  template <typename Done>
  uint64_t wait(double seconds, const Stopwatch& watch, Done done) {
    for (auto& c : connections_) {
      if (!c->flush()) seconds = std::min(seconds, 1e-3);
    }
    auto ns = static_cast<long>(std::clamp(seconds, 0.0, 0.999) * 1e9);
    timespec most = {0, ns};
    epoll_event events[64];
    uint64_t responses = 0;
    int n = epoll_pwait2(epoll_, events, std::size(events), &most, nullptr);
    for (int i = 0; i < n; i++) {
      double now = watch.seconds();  // for all responses that arrive together
      static_cast<Connection*>(events[i].data.ptr)->receive([&](const Request& r, double due) {
        done(r, now - due);
        responses++;
      });
    }
    return responses;
  }

  const Workload& workload_;
  int epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

// --- The phases ---

class Load {
 public:
  explicit Load(const Settings& s) : s_(s), workload_(s), requests_(s.operations()) {
    for (uint64_t c = 0; c < s.clients; c++) {
      clients_.push_back(
          std::make_unique<Client>(workload_, s, s.connections * (c + 1) / s.clients - s.connections * c / s.clients));
    }
  }

  void run() {
    Stopwatch filling;
    on_each(s_.keys(), [&](Client& client, uint64_t begin, uint64_t end) {
      client.run_closed(begin, end, kFillWindow, Workload::store, [](const Request&, double) {});
    });
    double fill_s = filling.seconds();
    // As a side effect, popular items become near.
    measure([&](Client& client, uint64_t begin, uint64_t end, auto done) {
      client.run_closed(
          begin, end, 1, [&](uint64_t number) { return workload_.draw(number); }, done);
    });
    double closed_s = seconds_, capacity = static_cast<double>(requests_) / closed_s;
    if (s_.closed) return report(s_.name.c_str(), s_.common, fill_s, closed_s, requests_, checksum_, latencies_);
    for (double rate : s_.rates) measure_at(rate);
    for (double share : kSweep) {
      if (s_.sweep) measure_at(share * capacity);
    }
    report(s_.name.c_str(), s_.common, fill_s, run_s_, (points_ - 1) * requests_, checksum_,
           member("capacity_per_s", capacity) + last_ + ",\"curve\":[" + curve_ + "]");
  }

 private:
  // work(client, begin, end)
  template <typename Work>
  void on_each(uint64_t count, Work work) {
    in_parallel(static_cast<unsigned>(clients_.size()), count,
                [&](unsigned c, uint64_t begin, uint64_t end) { work(*clients_[c], begin, end); });
  }

  // Sends the next requests: send(client, first, last, done).
  template <typename Send>
  void measure(Send send) {
    uint64_t first = 1 + points_++ * requests_;
    Latencies latencies(requests_);
    Stopwatch running;
    on_each(requests_, [&](Client& client, uint64_t begin, uint64_t end) {
      send(client, first + begin, first + end, [&](const Request& r, double seconds) {
        latencies.put(r.version - first, seconds);
        checksum_ += mix(r.key + r.version);
      });
    });
    seconds_ = running.seconds();
    latencies_ = latencies.text();
  }

  void measure_at(double rate) {
    double rate_of_client = rate / static_cast<double>(clients_.size());
    measure([&](Client& client, uint64_t begin, uint64_t end, auto done) {
      client.run_open(begin, end, rate_of_client, done);
    });
    run_s_ += seconds_;
    last_ = member("rate", rate) + member("achieved", static_cast<double>(requests_) / seconds_) + latencies_;
    curve_ += (curve_.empty() ? "{" : ",{") + last_.substr(1) + "}";
  }

  const Settings& s_;
  Workload workload_;
  uint64_t requests_;  // of the closed loop, and at each rate
  std::vector<std::unique_ptr<Client>> clients_;
  uint64_t points_ = 0;                // measurements so far
  std::atomic<uint64_t> checksum_{0};  // of all requests with a correct response
  double seconds_ = 0;                 // of the last measurement
  std::string latencies_;              // the same
  double run_s_ = 0;                   // of all at given rates
  std::string last_, curve_;
};

// --- The server ---

// The server's command, with options so that it keeps all keys and listens at `path`.
std::vector<std::string> server_command(const Settings& s, const std::string& path) {
  std::vector<std::string> command;
  std::stringstream words(s.server);
  for (std::string word; words >> word;) command.push_back(word);
  uint64_t megabytes = s.common.size * 5 / 4 / (1 << 20) + 64;
  command.insert(command.end(),
                 {"-s", path, "-M", "-m", std::to_string(megabytes), "-t", std::to_string(s.common.threads)});
  if (geteuid() == 0) command.insert(command.end(), {"-u", "root"});
  return command;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

// Starts the server, and executes this program again without the preload library: under Farside, the memory of the
// server is far and that of the load is not.
[[noreturn]] void start_server(int argc, char** argv, const Settings& s) {
  char folder[] = "/tmp/farside-memcached-XXXXXX";
  if (!mkdtemp(folder)) fail("cannot make a folder in /tmp");
  std::string path = std::string(folder) + "/socket";
  std::vector<std::string> command = server_command(s, path);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execvp(command[0].c_str(), pointers(command).data());
    fprintf(stderr, "memcached_load: cannot start %s: %s\n", command[0].c_str(), strerror(errno));
    _exit(127);
  }
  std::vector<std::string> arguments(argv, argv + argc);
  arguments.insert(arguments.end(), {"--connect", path, "--own-server", std::to_string(pid)});
  unsetenv("LD_PRELOAD");
  execv(std::filesystem::read_symlink("/proc/self/exe").c_str(), pointers(arguments).data());
  fail("cannot execute this program again");
}

// The socket's file is not needed any more after the connections have been made.
void remove_socket(const std::string& path) {
  unlink(path.c_str());
  rmdir(path.substr(0, path.rfind('/')).c_str());
}

// Waits until the server accepts connections.
void wait_for_server(const Settings& s) {
  for (Stopwatch watch; watch.seconds() < 60;) {
    int fd = connect_to(s.connect);
    if (fd >= 0) return static_cast<void>(close(fd));
    if (waitpid(static_cast<pid_t>(s.own_server), nullptr, WNOHANG) != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  remove_socket(s.connect);
  fail("the server did not start: " + s.server);
}

void stop_server(const Settings& s) {
  int status;
  auto pid = static_cast<pid_t>(s.own_server);
  kill(pid, SIGTERM);
  if (waitpid(pid, &status, 0) != pid) fail("the server ended before the load");
  if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM))
    fail("the server ended with status " + std::to_string(status));
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> rates;
  std::stringstream list(text);
  for (std::string rate; std::getline(list, rate, ',');) {
    rates.push_back(strtod(rate.c_str(), nullptr));
    if (rates.back() < 1) fail("--rates: " + rate + " is not a number of requests per second");
  }
  return rates;
}

Settings parse_settings(int argc, char** argv) {
  Settings s;
  std::string rates = "20000";
  s.common = parse(argc, argv,
                   {{"--value", &s.value_bytes},
                    {"--set-every", &s.set_every},
                    {"--connections", &s.connections},
                    {"--clients", &s.clients},
                    {"--server", &s.server},
                    {"--connect", &s.connect},
                    {"--rates", &rates},
                    {"--keys", &s.key_count},
                    {"--closed", &s.closed},
                    {"--name", &s.name},
                    {"--sweep", &s.sweep},
                    {"--own-server", &s.own_server}});
  if (s.value_bytes < 8 || s.value_bytes > 8000) fail("--value: from 8 to 8000 bytes");
  if (!s.sweep) s.rates = parse_rates(rates);
  if (s.clients == 0 || s.clients > s.connections) fail("--clients: at least one, with at least one connection each");
  return s;
}

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  Settings s = parse_settings(argc, argv);
  if (s.connect.empty()) start_server(argc, argv, s);
  if (s.own_server) wait_for_server(s);
  Load load(s);
  if (s.own_server) remove_socket(s.connect);
  load.run();
  if (s.own_server) stop_server(s);
}
