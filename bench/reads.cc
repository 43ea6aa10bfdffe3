#include "bench/reads.h"

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
#include "measure/process.h"
#include "measure/random.h"
#include "measure/statistics.h"
#include "remote/remote_store.h"
#include "report/format.h"
#include "report/machine.h"

namespace farside::bench {
namespace {

using nlohmann::json;
using transport::Channel;
using transport::kMaxInFlight;
using transport::Segment;
using transport::Token;

constexpr uint32_t kPieceBytes = 2 * 1024 * 1024;  // of a stream
constexpr uint32_t kStreamRequest = 256 * 1024;    // several of them carry a piece
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
  Load(const ReadsSettings& settings, const Kind& kind, unsigned in_flight)
      : settings_(settings), kind_(kind), in_flight_(in_flight) {}

  Status open(const std::string& address, const std::string& token) {
    remote::StoreConfig config = {.address = address.c_str(), .token = token.c_str(), .region_bytes = settings_.bytes};
    auto store = remote::RemoteStore::connect(config);
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
      Segment segment = {at, static_cast<uint32_t>(std::min(data.size(), settings_.bytes - at)), data.data()};
      Token token;
      int r = channel->submit_write({&segment, 1}, -1, &token);
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
    Segment segment = {far, access_bytes(), flight->buffer};
    if (kind_.access == Access::kStreamWrite) return flight->channel->submit_write({&segment, 1}, -1, &flight->token);
    return flight->channel->submit_read({&segment, 1}, &flight->token);
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

  const ReadsSettings& settings_;
  const Kind& kind_;
  const unsigned in_flight_;
  std::unique_ptr<remote::RemoteStore> store_;
  uint64_t until_ns_ = 0;
  std::atomic<int> failed_{0};
};

struct Cell {
  const Kind* kind;
  unsigned in_flight, latency_us;
  std::vector<double> us, client_us, server_us, processor_us;
};

class ReadsRun {
 public:
  ReadsRun(const ReadsSettings& settings, const SignalHold& hold)
      : settings_(settings),
        hold_(hold),
        cells_(make_cells(settings)),
        progress_(settings.repetitions * cells_.size(), settings.quiet) {}

  Status prepare() {
    uint64_t memory = 2 * settings_.bytes + 32 * remote::kSlabBytes;
    auto first = ServerProcess::start(hold_, memory);
    if (!first.ok()) return first.status();
    auto second = ServerProcess::start(hold_, memory, (*first)->token());
    if (!second.ok()) return second.status();
    first_ = std::move(*first);
    second_ = std::move(*second);
    return {};
  }

  Status repeat() {
    for (Cell& cell : cells_) {
      progress_.step(fmt::format("{}, {} in flight, {} us", cell.kind->name, cell.in_flight, cell.latency_us));
      if (Status s = measure(&cell); !s.ok()) return s;
    }
    return {};
  }

  json document() const {
    json made = {{"benchmark", "reads"}, {"machine", machine_json()}, {"cells", json::array()}};
    made["settings"] = {
        {"bytes", settings_.bytes}, {"seconds", settings_.seconds}, {"repetitions", settings_.repetitions}};
    for (const Cell& cell : cells_) {
      made["cells"].push_back({{"kind", cell.kind->name},
                               {"in_flight", cell.in_flight},
                               {"latency_us", cell.latency_us},
                               {"us", summary(cell.us)},
                               {"client_us", summary(cell.client_us)},
                               {"server_us", summary(cell.server_us)},
                               {"processor_us", summary(cell.processor_us)}});
    }
    return made;
  }

 private:
  static std::vector<Cell> make_cells(const ReadsSettings& settings) {
    std::vector<Cell> cells;
    for (unsigned latency : settings.latencies_us) {
      for (const Kind& kind : kinds()) {
        bool wanted = settings.kinds.empty() || std::count(settings.kinds.begin(), settings.kinds.end(), kind.name);
        if (!wanted || (latency > 0 && !kind.with_latency)) continue;
        for (unsigned in_flight : kind.in_flight) cells.push_back({&kind, in_flight, latency, {}, {}, {}, {}});
      }
    }
    return cells;
  }

  Status measure(Cell* cell) {
    std::unique_ptr<DelayingProxy> proxy;
    std::string address = first_->tcp();
    if (cell->kind->access == Access::kTwoServers) address += "," + second_->tcp();
    if (cell->latency_us > 0) {
      auto started = DelayingProxy::start(first_->tcp(), cell->latency_us);
      if (!started.ok()) return started.status();
      proxy = std::move(*started);
      address = proxy->address();
    }
    auto made = run_in_child(hold_, [&] { return measure_in_child(*cell, address); });
    if (!made.ok()) return made.status();
    cell->us.push_back((*made)["us"]);
    cell->client_us.push_back((*made)["client_us"]);
    cell->server_us.push_back((*made)["server_us"]);
    cell->processor_us.push_back(cell->client_us.back() + cell->server_us.back());
    return {};
  }

  Result<json> measure_in_child(const Cell& cell, const std::string& address) const {
    Load load(settings_, *cell.kind, cell.in_flight);
    Status s = load.open(address, first_->token());
    if (!s.ok()) return s;
    auto warm = load.run(settings_.seconds / 4);
    if (!warm.ok()) return warm.status();
    uint64_t server = server_cpu_ns(), client = cpu_ns(CLOCK_PROCESS_CPUTIME_ID), begin = now_ns();
    auto made = load.run(settings_.seconds);
    if (!made.ok()) return made.status();
    double count = static_cast<double>(std::max<uint64_t>(1, *made)) * 1000;
    return json{{"us", static_cast<double>(now_ns() - begin) / count},
                {"client_us", static_cast<double>(cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - client) / count},
                {"server_us", static_cast<double>(server_cpu_ns() - server) / count}};
  }

  uint64_t server_cpu_ns() const { return first_->cpu_ns() + second_->cpu_ns(); }

  const ReadsSettings& settings_;
  const SignalHold& hold_;
  std::vector<Cell> cells_;
  Progress progress_;
  std::unique_ptr<ServerProcess> first_, second_;
};

}  // namespace

std::vector<std::string> reads_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.name);
  return names;
}

Result<json> measure_reads(const ReadsSettings& settings) {
  SignalHold hold;
  ReadsRun run(settings, hold);
  Status status = run.prepare();
  for (unsigned i = 0; i < settings.repetitions && status.ok(); i++) status = run.repeat();
  if (!status.ok()) return status;
  return run.document();
}

std::string reads_text(const json& document) {
  std::vector<std::vector<std::string>> rows = {
      {"us, medians", "in flight", "added latency", "elapsed", "client", "server", "processor time"}};
  auto us = [](const json& value) { return fmt::format("{:.2f}", value["median"].get<double>()); };
  for (const json& cell : document["cells"]) {
    rows.push_back({cell["kind"].get<std::string>(), fmt::format("{}", cell["in_flight"].get<unsigned>()),
                    fmt::format("{}", cell["latency_us"].get<unsigned>()), us(cell["us"]), us(cell["client_us"]),
                    us(cell["server_us"]), us(cell["processor_us"])});
  }
  return machine_text(document["machine"]) + "\n\n" + format_table(rows);
}

}  // namespace farside::bench
