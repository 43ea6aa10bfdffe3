#include "bench/scaling/calibrate.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/scaling/machine_costs.h"
#include "measure/configurations.h"
#include "measure/process.h"
#include "measure/statistics.h"
#include "remote/connect.h"
#include "report/format.h"

namespace farside::bench::scaling {
namespace {

using nlohmann::json;

constexpr double kBatchPages = 128;  // batch size of the measured evictor

// ---- Tiers ----

// Requests of one client, without a pager.
class Requests {
 public:
  Requests(transport::Channel& channel, const ServerProcess* server)
      : channel_(channel),
        server_(server),
        buffer_(static_cast<std::byte*>(near_alloc(kMaxPages * kPageSize))),
        per_us_(ticks_per_us()) {}
  ~Requests() { near_free(buffer_, kMaxPages * kPageSize); }

  static constexpr unsigned kMaxPages = 64, kSlots = 4096;

  Status store() {
    memset(buffer_, 1, kMaxPages * kPageSize);
    for (unsigned at = 0; at < kSlots; at += kMaxPages) {
      transport::Token token;
      transport::ByteRange s = {at * kPageSize, kMaxPages * kPageSize, buffer_};
      int error = channel_.submit_write({&s, 1}, -1, &token);
      if (error == 0) error = channel_.wait(token, kTimeoutNs);
      if (error) return Status::error(-error, "cannot write to far memory: {}", strerror(-error));
    }
    return {};
  }

  struct Parts {
    double submit, complete;
  };
  // A pause between submission and completion separates the work of the two ends. Reads are of neighbours.
  Parts parts(unsigned pages) {
    constexpr unsigned kRounds = 200, kPauseUs = 400;
    std::vector<double> submits, completes;
    for (unsigned i = 0; i < kRounds; i++) {
      uint64_t start = ticks();
      transport::Token token = submit(i * 67 % (kSlots / kMaxPages) * kMaxPages, pages);
      submits.push_back(us_since(start));
      usleep(kPauseUs);
      start = ticks();
      finish(token);
      completes.push_back(us_since(start));
    }
    return {median(submits), median(completes)};
  }

  double round_trip() {
    constexpr unsigned kRounds = 2000;
    std::vector<double> times;
    for (unsigned i = 0; i < kRounds; i++) {
      uint64_t start = ticks();
      finish(submit(i * 67 % (kSlots / kMaxPages) * kMaxPages, 1));
      times.push_back(us_since(start));
    }
    return median(times);
  }

  // us for each of several reads in flight, and the server's processor time for it: a server that is busy polls little.
  struct Shares {
    double us, serve;
  };
  Shares in_parallel(unsigned pages, unsigned reads) {
    constexpr unsigned kRounds = 300;
    std::vector<double> times;
    uint64_t before = server_ ? server_->cpu_ns() : 0;
    for (unsigned i = 0; i < kRounds; i++) {
      transport::Token tokens[transport::kMaxInFlight];
      uint64_t start = ticks();
      channel_.gather(true);
      for (unsigned k = 0; k < reads; k++) tokens[k] = submit((i * reads + k) * 2654435761u % (kSlots - pages), pages);
      channel_.gather(false);
      for (unsigned k = 0; k < reads; k++) finish(tokens[k]);
      times.push_back(us_since(start) / reads);
    }
    return {median(times), server_ ? static_cast<double>(server_->cpu_ns() - before) / 1000 / kRounds / reads : 0};
  }

 private:
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  double us_since(uint64_t start) const { return static_cast<double>(ticks() - start) / per_us_; }
  transport::Token submit(unsigned slot, unsigned pages) {
    transport::ByteRange s = {slot * kPageSize, static_cast<uint32_t>(pages * kPageSize), buffer_};
    transport::Token token = 0;
    if (channel_.submit_read({&s, 1}, &token) != 0) die("a read of far memory failed during calibration");
    return token;
  }
  void finish(transport::Token token) {
    int state;
    while ((state = channel_.poll(token)) == 0) {}
    if (state < 0) die("a read of far memory failed during calibration");
  }

  transport::Channel& channel_;
  const ServerProcess* const server_;  // nullptr: there is none
  std::byte* const buffer_;
  const double per_us_;
};

Result<json> measure_tier(const std::string& address, const ServerProcess* server) {
  auto store = remote::connect_store(
      {.address = address.c_str(), .token = server ? server->token().c_str() : "", .region_bytes = remote::kSlabBytes});
  if (!store.ok()) return store.status();
  if (Status grown = (*store)->grow(remote::kSlabBytes); !grown.ok()) return grown;
  Status opened;
  transport::Channel* channel = (*store)->open_channel(&opened);
  if (!channel) return opened;
  json measured;
  {
    Requests requests(*channel, server);
    if (Status stored = requests.store(); !stored.ok()) return stored;
    auto one = requests.parts(1), many = requests.parts(Requests::kMaxPages);
    auto singles = requests.in_parallel(1, transport::kMaxInFlight - 1);
    auto windows = requests.in_parallel(Requests::kMaxPages, 4);
    measured = {{"submit", one.submit},
                {"complete", one.complete},
                {"complete_many", many.complete},
                {"serve", singles.serve},
                {"serve_many", windows.serve},
                {"parallel", singles.us},
                {"round_trip", requests.round_trip()}};
  }
  (*store)->close_channel(channel);
  return measured;
}

unsigned cores_here() {
  cpu_set_t allowed;
  bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  return known && CPU_ISSET(0, &allowed) && CPU_ISSET(1, &allowed) ? 2 : 1;
}

json::json_pointer at(const std::string& text) { return json::json_pointer(text); }

// The repetition in which this value was the smallest.
const json& best(const std::vector<json>& runs, const std::string& value) {
  return *std::ranges::min_element(runs, {}, [&](const json& run) { return run[at(value)].get<double>(); });
}
double minimum(const std::vector<json>& runs, const std::string& value) { return best(runs, value)[at(value)]; }
double median_of(const std::vector<json>& runs, const std::string& value) {
  std::vector<double> all;
  for (const json& run : runs) all.push_back(run[at(value)]);
  return median(all);
}
// The cell of the run in which it was fastest.
json cell_of(const std::vector<json>& runs, const std::string& paging, size_t i) {
  std::string cell = fmt::format("{}/cells/{}", paging, i);
  return best(runs, cell + "/us")[at(cell)];
}

}  // namespace

Calibration::Calibration(const AccessSettings& paging, const std::string& folder, const SignalHold& hold)
    : paging_(paging), folder_(folder), hold_(hold), cores_(cores_here()) {}

uint64_t Calibration::bytes_of_server() const { return 2 * paging_.bytes + 32 * remote::kSlabBytes; }

// A run of plain memory, of far memory on one core and on two, and of each tier.
Result<json> Calibration::measure() {
  auto server = ServerProcess::start(hold_, bytes_of_server());
  if (!server.ok()) return server.status();
  json run = {{"far", json::array()}, {"tiers", json::object()}};
  Status done = cores_ > 1 ? collect(&run["machine"], measure_machine) : Status();
  if (done.ok()) done = collect(&run["native"], [this] { return measure_plain(paging_, nullptr); });
  FarMemoryConfig far = {(*server)->shm(), (*server)->token(), paging_.bytes, near(), pager::Delivery::kSignal, 1};
  for (unsigned n = 1; done.ok() && n <= cores_; n++) {
    done = collect(&run["far"].emplace_back(), [this, &far, n] {
      run_on(0, n);
      return measure_far(paging_, far);
    });
  }
  if (done.ok()) done = measure_over((*server)->tcp(), far, server->get(), &run["tiers"]["tcp"]);
  std::string file = fmt::format("file:{}?size={}&alloc=full", folder_, bytes_of_server());
  if (done.ok()) done = measure_over(file, far, nullptr, &run["tiers"]["file"]);
  return done.ok() ? Result<json>(run) : done;
}

Status Calibration::collect(json* run, const std::function<Result<json>()>& work) const {
  Result<json> result = run_in_child(hold_, work);
  if (result.ok()) *run = std::move(*result);
  return result.status();
}

Status Calibration::measure_over(const std::string& address, FarMemoryConfig far, const ServerProcess* server,
                                 json* tier) const {
  far.address = address;
  Status done = collect(&(*tier)["requests"], [&] { return measure_tier(address, server); });
  AccessSettings paging = paging_;
  paging.threads = {1, 4};
  if (server) paging.threads.push_back(16);
  return done.ok() ? collect(&(*tier)["paging"], [&] { return measure_far(paging, far); }) : done;
}

Costs Calibration::costs() const {
  Costs c;
  c.frames = near() / kPageSize;
  c.here.cores = c.here.cores_per_socket = cores_;
  if (cores_ > 1) {
    c.here.line = minimum(runs_, "/machine/line");
    // Not the minimum: in that run the other core ran something else.
    c.here.shootdown = median_of(runs_, "/machine/shootdown");
    c.here.wake = median_of(runs_, "/machine/wake");
    c.here.wake_latency = median_of(runs_, "/machine/wake_latency");
    c.here.copy = minimum(runs_, "/machine/copy");
    if (double move = minimum(runs_, "/machine/move"); move > 0) c.here.move = move;
  }
  c.here.line_far = c.here.line;
  std::string all_cores = fmt::format("/far/{}", cores_ - 1);
  c.miss_median = minimum(runs_, all_cores + "/miss/median_us");
  c.miss_p99 = minimum(runs_, all_cores + "/miss/p99_us");
  for (unsigned n = 1; n <= cores_; n++) {
    for (size_t i = 0; i < runs_[0]["far"][n - 1]["cells"].size(); i++) add_cell(i, n, &c);
  }
  for (const auto& [name, tier] : runs_[0]["tiers"].items()) add_tier(name, &c);
  return c;
}

// A disk's latency is what its reads take without the thread's work; a server's without its work, too.
void Calibration::add_tier(const std::string& name, Costs* costs) const {
  std::string tier = "/tiers/" + name;
  auto get = [&](const char* value) { return minimum(runs_, tier + "/requests/" + value); };
  constexpr double kMore = Requests::kMaxPages - 1;
  LinkCosts link;
  link.submit = get("submit");
  link.complete_page = std::max(0.0, get("complete_many") - get("complete")) / kMore;
  link.complete = std::max(0.0, get("complete") - link.complete_page);
  link.serve_page = std::max(0.0, get("serve_many") - get("serve")) / kMore;
  link.serve = std::max(0.0, get("serve") - link.serve_page);
  double work = get("submit") + get("complete") + get("serve");
  link.latency = std::max(0.1, get("round_trip") - work);
  if (link.serve == 0) link.page = get("parallel");
  costs->tiers[name] = link;
  size_t cells = runs_[0][at(tier + "/paging/cells")].size();
  for (size_t i = 0; i < cells; i++) add_tier_cell(name, link, cell_of(runs_, tier + "/paging", i), costs);
}

void Calibration::add_tier_cell(const std::string& name, const LinkCosts& link, const json& cell, Costs* costs) const {
  std::string workload = cell["workload"];
  if (workload.ends_with("write")) return;  // the model's evictors do not share a server with reads
  costs->measured.push_back({workload, name, cores_, cell["threads"], cell["us"]});
  if (cell["threads"] != 1) return;
  WorkloadCosts w = costs_of_cell(cell, costs->workloads.at(workload).access, cores_ > 1 ? costs->here.shootdown : 0);
  w.fetch = 0;  // the link's costs
  w.handle = std::max(0.0, w.handle - link.submit);
  costs->workloads[workload + ", " + name] = w;
}

// The costs are taken from one thread on all available cores.
void Calibration::add_cell(size_t i, unsigned cores, Costs* costs) const {
  json cell = cell_of(runs_, fmt::format("/far/{}", cores - 1), i);
  std::string workload = cell["workload"];
  costs->measured.push_back({workload, "shm", cores, cell["threads"], cell["us"]});
  if (cores != cores_ || cell["threads"] != 1) return;
  double access_us = cell_of(runs_, "/native", i)["us"];
  costs->workloads[workload] = costs_of_cell(cell, access_us, cores > 1 ? costs->here.shootdown : 0);
}

WorkloadCosts costs_of_cell(const json& cell, double access_us, double shootdown_us) {
  auto get = [&](const char* name) { return cell["counters"].value(name, 0.0); };
  auto at_least_one = [](double v) { return std::max(v, 1.0); };
  double accesses = at_least_one(get("accesses")), faults = at_least_one(get("faults"));
  double pages = at_least_one(get("major_faults") + get("prefetched")), evicted = at_least_one(get("evictions"));
  double waits = get("wait_frame_us") + get("wait_page_us");
  WorkloadCosts w;
  w.access = access_us;
  w.faults_per_access = faults / accesses;
  w.pages_per_fault = std::max(1.0, pages / faults);
  w.dirty = std::min(1.0, get("dirty_evictions") / evicted);  // a batch in progress is in one counter only
  w.signal = std::max(0.5, (cell["us"].get<double>() * accesses - get("fault_us") - accesses * access_us) / faults);
  w.handle = std::max(0.0, (get("fault_us") - get("fetch_us") - get("map_us") - waits) / faults);
  w.fetch = get("fetch_us") / pages;
  w.map = get("map_us") / pages;
  w.select = get("select_us") / evicted;
  w.hold = get("hold_us") / evicted;
  w.unmap = std::max(0.0, get("unmap_us") / evicted - shootdown_us / kBatchPages);
  w.write = get("write_us") / evicted;
  w.release = get("release_us") / evicted;
  return w;
}

}  // namespace farside::bench::scaling
