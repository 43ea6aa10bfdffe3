// `farside bench reads`: what requests cost over tcp, without a pager: their time, and the processor time of client and
// server together. By one thread with several requests in flight, by threads that wait for one request each, and in
// pieces of 2 MiB; with latency added by a proxy.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/bits.h"
#include "base/clock.h"
#include "bench/delaying_proxy.h"
#include "bench/suites.h"
#include "measure/random.h"
#include "remote/connect.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using transport::ByteRange;
using transport::Channel;
using transport::kMaxInFlight;
using transport::Token;

constexpr uint32_t kStreamRequest = 256 * 1024;  // several of them carry a piece
constexpr uint64_t kTimeoutNs = 30'000'000'000;

enum class Access { kConnection, kGathered, kThreads, kTwoServers, kLine, kStreamRead, kStreamWrite };

struct Kind {
  const char* name;
  Access access;
  std::vector<unsigned> in_flight;
  bool with_latency;  // measured with added latency as well
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"one thread", Access::kConnection, {1, 4, 16, 64}, true},
      {"one thread, gathered", Access::kGathered, {4, 16, 64}, true},
      {"threads", Access::kThreads, {1, 4, 16, 64}, true},
      {"two servers, gathered", Access::kTwoServers, {4, 16}, false},
      {"64 bytes, gathered", Access::kLine, {16}, false},
      {"2 MiB pieces, read", Access::kStreamRead, {8}, false},
      {"2 MiB pieces, write", Access::kStreamWrite, {8}, false},
  };
  return all;
}

bool is_stream(Access access) { return access >= Access::kStreamRead; }

uint64_t cpu_ns(clockid_t clock) {
  timespec t = {};
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

// One measurement, in a process of its own.
class Load {
 public:
  Load(const Settings& settings, const Kind& kind, unsigned in_flight)
      : settings_(settings), kind_(kind), in_flight_(in_flight) {}

  Status open(const std::string& address, const std::string& token) {
    remote::StoreConfig config = {.address = address.c_str(), .token = token.c_str(), .region_bytes = settings_.bytes};
    auto store = remote::connect_store(config);
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    Status s = store_->grow(align_up(settings_.bytes, remote::kSlabBytes));
    if (s.ok()) s = store_->claim(0, settings_.bytes);
    return s.ok() ? fill() : s;
  }

  // Accesses until the time has passed. The number of accesses, or of pages of streams.
  Result<uint64_t> run(double seconds) {
    until_ns_ = now_ns() + static_cast<uint64_t>(seconds * 1e9);
    failed_ = 0;
    uint64_t made = kind_.access == Access::kThreads ? run_threads() : run_channels();
    if (failed_ != 0) return Status::error(-failed_, "a request failed with error {}", -failed_.load());
    return is_stream(kind_.access) ? made * (kStreamRequest / kPageSize) : made;
  }

 private:
  using ChannelPointer = std::unique_ptr<Channel, std::function<void(Channel*)>>;
  struct Flight {
    Channel* channel;
    Token token;
    std::byte* buffer;
  };

  ChannelPointer open_channel() {
    Status status;
    Channel* channel = store_->open_channel(&status);
    if (!channel) failed_ = -status.code();
    return {channel, [this](Channel* c) { store_->close_channel(c); }};
  }

  uint32_t access_bytes() const {
    if (is_stream(kind_.access)) return kStreamRequest;
    return kind_.access == Access::kLine ? 64 : kPageSize;
  }

  Status fill() {
    ChannelPointer channel = open_channel();
    std::vector<std::byte> data(transport::kMaxRequestBytes);
    Random random(1);
    for (std::byte& b : data) b = static_cast<std::byte>(random.next());
    for (uint64_t at = 0; at < settings_.bytes && channel && failed_ == 0; at += data.size()) {
      ByteRange range = {at, static_cast<uint32_t>(std::min(data.size(), settings_.bytes - at)), data.data()};
      Token token;
      int r = channel->submit_write({&range, 1}, -1, &token);
      if (r == 0) r = channel->wait(token, kTimeoutNs);
      if (r < 0) failed_ = r;
    }
    if (failed_ != 0) return Status::error(-failed_, "cannot fill far memory: error {}", -failed_.load());
    return {};
  }

  uint64_t next_offset(Random* random, uint64_t* position) const {
    uint32_t bytes = access_bytes();
    if (!is_stream(kind_.access)) return random->next() % (settings_.bytes / bytes) * bytes;
    uint64_t at = *position;
    *position = at + 2 * bytes > settings_.bytes ? 0 : at + bytes;
    return at;
  }

  int submit(Flight* flight, uint64_t far) const {
    ByteRange range = {far, access_bytes(), flight->buffer};
    if (kind_.access == Access::kStreamWrite) return flight->channel->submit_write({&range, 1}, -1, &flight->token);
    return flight->channel->submit_read({&range, 1}, &flight->token);
  }

  // One thread with in_flight_ requests, over as many channels as they need.
  uint64_t run_channels() {
    std::vector<ChannelPointer> channels;
    std::deque<Flight> flights;
    std::vector<std::byte> buffers(size_t{in_flight_} * access_bytes());
    Random random(2);
    uint64_t position = 0, made = 0;
    for (unsigned i = 0; i < in_flight_; i++) {
      if (i % kMaxInFlight == 0) channels.push_back(open_channel());
      Channel* channel = channels.back().get();
      if (!channel) return 0;
      if (kind_.access != Access::kConnection) channel->gather(true);
      Flight flight = {channel, 0, buffers.data() + size_t{i} * access_bytes()};
      if (!check(submit(&flight, next_offset(&random, &position)))) return 0;
      flights.push_back(flight);
    }
    while (!flights.empty() && failed_ == 0) {
      bool over = now_ns() >= until_ns_;
      bool waited = false;
      for (size_t i = flights.size(); i > 0; i--) {
        Flight flight = flights.front();
        int r = flight.channel->poll(flight.token);
        if (r == 0 && !waited && i == flights.size()) {
          r = flight.channel->wait(flight.token, kTimeoutNs) == 0 ? 1 : -EIO;
          waited = true;
        }
        if (!check(std::min(r, 0))) break;
        flights.pop_front();
        if (r == 0) {
          flights.push_back(flight);
          continue;
        }
        made++;
        if (over) continue;
        if (!check(submit(&flight, next_offset(&random, &position)))) break;
        flights.push_back(flight);
      }
    }
    return made;
  }

  uint64_t run_threads() {
    std::atomic<uint64_t> made{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < in_flight_; i++) threads.emplace_back([&, i] { made += read_alone(i); });
    for (std::thread& t : threads) t.join();
    return made;
  }

  uint64_t read_alone(unsigned thread) {
    ChannelPointer channel = open_channel();
    if (!channel) return 0;
    std::vector<std::byte> buffer(kPageSize);
    Random random(3 + thread);
    uint64_t made = 0, position = 0;
    for (; now_ns() < until_ns_ && failed_ == 0; made++) {
      Flight flight = {channel.get(), 0, buffer.data()};
      int r = submit(&flight, next_offset(&random, &position));
      if (r == 0) r = channel->wait(flight.token, kTimeoutNs);
      if (!check(r)) break;
    }
    return made;
  }

  bool check(int result) {
    if (result < 0) failed_ = result;
    return result >= 0;
  }

  const Settings& settings_;
  const Kind& kind_;
  const unsigned in_flight_;
  std::unique_ptr<remote::RemoteStore> store_;
  uint64_t until_ns_ = 0;
  std::atomic<int> failed_{0};
};

struct Request {
  const Kind* kind;
  unsigned in_flight, latency_us;
};

// The address of the servers, behind a proxy if there is latency to add.
Result<std::string> address_of(const Setup& setup, const Request& request, std::unique_ptr<DelayingProxy>* proxy) {
  if (request.kind->access == Access::kTwoServers) return setup.server().tcp() + "," + setup.second().tcp();
  if (request.latency_us == 0) return setup.server().tcp();
  auto started = DelayingProxy::start(setup.server().tcp(), request.latency_us);
  if (!started.ok()) return started.status();
  *proxy = std::move(*started);
  return (*proxy)->address();
}

uint64_t servers_cpu_ns(const Setup& setup) { return setup.server().cpu_ns() + setup.second().cpu_ns(); }

Result<json> measure(const Setup& setup, const Request& request) {
  std::unique_ptr<DelayingProxy> proxy;
  auto address = address_of(setup, request, &proxy);
  if (!address.ok()) return address.status();
  Load load(setup.settings(), *request.kind, request.in_flight);
  if (Status s = load.open(*address, setup.server().token()); !s.ok()) return s;
  auto warm = load.run(setup.settings().seconds / 4);
  if (!warm.ok()) return warm.status();
  uint64_t server = servers_cpu_ns(setup), client = cpu_ns(CLOCK_PROCESS_CPUTIME_ID), begin = now_ns();
  auto made = load.run(setup.settings().seconds);
  if (!made.ok()) return made.status();
  double count = static_cast<double>(std::max<uint64_t>(1, *made)) * 1000;
  double client_us = static_cast<double>(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - client) / count;
  double server_us = static_cast<double>(servers_cpu_ns(setup) - server) / count;
  return json{{"us", static_cast<double>(now_ns() - begin) / count},
              {"client_us", client_us},
              {"server_us", server_us},
              {"processor_us", client_us + server_us}};
}

void add(const Setup& setup, const Request& request, std::vector<Measurement>* all) {
  const char* kind = request.kind->name;
  all->push_back({.key = {{"kind", kind}, {"in_flight", request.in_flight}, {"latency_us", request.latency_us}},
                  .name = fmt::format("{}, {} in flight, {} us", kind, request.in_flight, request.latency_us),
                  .run = [&setup, request] { return measure(setup, request); }});
}

std::vector<Measurement> measurements(const Setup& setup) {
  std::vector<Measurement> all;
  for (unsigned latency : setup.settings().latencies_us) {
    for (const Kind& kind : kinds()) {
      if (!Settings::wants(setup.settings().kinds, kind.name) || (latency > 0 && !kind.with_latency)) continue;
      for (unsigned in_flight : kind.in_flight) add(setup, {&kind, in_flight, latency}, &all);
    }
  }
  return all;
}

}  // namespace

Suite reads_suite() {
  return {.name = "reads",
          .measurements = measurements,
          .tables = {table("us, medians", {"kind", "in_flight", "latency_us"},
                           {col("elapsed", "us", 2), col("client", "client_us", 2), col("server", "server_us", 2),
                            col("processor time", "processor_us", 2)})}};
}

}  // namespace farside::bench
