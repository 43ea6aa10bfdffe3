// Lookups in hash maps, with keys distributed by Zipf's law with exponents from 0 (uniform) to 1.35 (AIFM, figure 9).
// The two maps of Farside with far entries are compared with std::unordered_map, all near, paged by Farside, and on
// kernel swap.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <memory_resource>
#include <unordered_map>

#include "base/clock.h"
#include "base/log.h"
#include "bench/objects/lines.h"
#include "farside/containers/far_hash_map.hpp"
#include "farside/containers/hash_map.hpp"
#include "measure/random.h"
#include "pager/policy/simulator.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr double kExponents[] = {0, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35};
constexpr unsigned kFibers[] = {1, 64};
constexpr unsigned kThread = 0;  // in place of a number of fibers: a thread reads
constexpr double kMinSeconds = 0.2;
constexpr unsigned kSlicesOfTrace = 40;
constexpr unsigned kMaxSlices = kSlicesOfTrace / std::size(kFibers) - 1;  // one more to warm up
constexpr const char* kNative = "native";  // in the rows of other configurations: their transport

struct Value {
  uint64_t words[31];
};
struct Entry {  // with its key
  uint64_t key;
  Value value;
};
static_assert(sizeof(Entry) == 256);

// Compresses to about a half, as is typical of program data: zram compresses.
Value value_of(uint64_t key) {
  Random random(key);
  Value value = {};
  for (unsigned i = 1; i < 15; i++) value.words[i] = random.next();
  value.words[0] = key;
  value.words[30] = ~key;
  return value;
}

// Values by key, in one of several kinds of map.
class KeyTable {
 public:
  virtual ~KeyTable() = default;
  virtual void put(uint64_t key, const Value& value) = 0;
  virtual bool get(uint64_t key, Value* value) const = 0;  // a copy
};

template <typename Map>
class FarTable : public KeyTable {
 public:
  void put(uint64_t key, const Value& value) override { map_.try_emplace(key, value); }
  bool get(uint64_t key, Value* value) const override {
    deref_scope scope;
    const Value* found = map_.get(key, scope);
    if (found) *value = *found;
    return found;
  }

 private:
  Map map_;
};

// Buckets and nodes are all in the given memory.
class StdTable : public KeyTable {
 public:
  static uint64_t bytes_for(uint64_t count) { return count * (sizeof(Entry) + 32) + kMiB; }
  StdTable(std::byte* memory, uint64_t count)
      : place_(memory, bytes_for(count), std::pmr::null_memory_resource()), map_(&place_) {
    map_.reserve(count);
  }
  void put(uint64_t key, const Value& value) override { map_.emplace(key, value); }
  bool get(uint64_t key, Value* value) const override {
    auto found = map_.find(key);
    if (found != map_.end()) *value = found->second;
    return found != map_.end();
  }

 private:
  std::pmr::monotonic_buffer_resource place_;
  std::pmr::unordered_map<uint64_t, Value> map_;
};

using Traces = std::shared_ptr<std::vector<pager::Trace>>;

struct Run {
  const Setup& setup;
  Traces traces;  // keys to look up, one trace per exponent
  uint64_t count() const { return setup.settings().bytes / sizeof(Entry); }
};

// Looks up the keys of one trace, in slices.
class Lookups {
 public:
  Lookups(const KeyTable& table, const pager::Trace& trace) : table_(table), keys_(trace.accesses) {}
  // Looks up the next slice of the trace; wraps around at the end. Returns seconds.
  double time_slice(unsigned fibers) {
    end_ = next_ + slice();
    if (fibers != kThread) return time_fibers(fibers, [this](unsigned) { go(); });
    uint64_t begin = now_ns();
    go();
    return static_cast<double>(now_ns() - begin) / 1e9;
  }
  uint64_t slice() const { return keys_.size() / kSlicesOfTrace; }

 private:
  // next_ needs no lock: all fibers are on one worker.
  void go() {
    while (next_ < end_) {
      uint64_t key = keys_[next_++ % keys_.size()];
      Value value;
      if (!table_.get(key, &value) || value.words[0] != key || value.words[30] != ~key)
        die("key {} has a wrong value", key);
    }
  }
  const KeyTable& table_;
  const std::vector<pager::PageIndex>& keys_;
  uint64_t next_ = 0, end_ = 0;
};

json measure_point(Lookups& lookups, unsigned fibers, FarMemory* far) {
  lookups.time_slice(fibers);
  double before = far ? bytes_fetched(*far) : 0, seconds = 0;
  unsigned slices = 0;
  while (seconds < kMinSeconds && slices < kMaxSlices) seconds += lookups.time_slice(fibers), slices++;
  double done = static_cast<double>(slices * lookups.slice());
  json figures = {{"lookups_per_s", done / seconds}};
  if (far) figures["bytes_per_lookup"] = (bytes_fetched(*far) - before) / done;
  return figures;
}

void fill(KeyTable& table, uint64_t count) {
  for (uint64_t key = 0; key < count; key++) table.put(key, value_of(key));
  settle();
}

// All exponents on one table, the least skewed first.
json measure_table(const Run& run, const KeyTable& table, std::span<const unsigned> fibers, FarMemory* far) {
  json rows = json::array();
  for (size_t i = 0; i < std::size(kExponents); i++) {
    Lookups lookups(table, (*run.traces)[i]);
    for (unsigned n : fibers) {
      rows.push_back(make_row({{"fibers", n}, {"exponent", kExponents[i]}}, measure_point(lookups, n, far)));
    }
  }
  return rows;
}

uint64_t heap_bytes() {
  struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// The near memory that a map uses for its index is subtracted from the budget for its entries, so that all maps have
// the same amount in total.
template <typename Map>
Result<json> measure_objects_map(const Run& run, const std::string& transport) {
  FarMemoryConfig config = run.setup.far(transport);
  config.bytes = 0;
  config.more_bytes = 4 * run.setup.settings().bytes;  // objects that are fetched one by one leave garbage there
  auto far = open_with_objects(config);
  if (!far.ok()) return far.status();
  uint64_t before = heap_bytes();
  FarTable<Map> table;
  fill(table, run.count());
  uint64_t index = std::min(heap_bytes() - before, config.local * 7 / 8);
  (*far)->pager().evictors().set_local({config.local - index, 0});
  return measure_table(run, table, kFibers, far->get());
}

Result<json> measure_paged_map(const Run& run, const std::string& transport) {
  FarMemoryConfig config = run.setup.far(transport);
  config.bytes = StdTable::bytes_for(run.count());
  auto far = FarMemory::create(config);
  if (!far.ok()) return far.status();
  StdTable table((*far)->arena().base, run.count());
  fill(table, run.count());
  return measure_table(run, table, kFibers, far->get());
}

// By one thread, in memory of the kernel: native or on swap.
Result<json> measure_plain_map(const Run& run, const std::string& transport) {
  uint64_t bytes = StdTable::bytes_for(run.count());
  Result<std::byte*> memory = transport == kSwap ? run.setup.swap()->enter_and_map(bytes) : map_plain(bytes);
  if (!memory.ok()) return memory.status();
  StdTable table(*memory, run.count());
  fill(table, run.count());
  return measure_table(run, table, std::span(&kThread, 1), nullptr);
}

using HashMap = hash_map<uint64_t, Value>;
using FarHashMap = far_hash_map<uint64_t, Value>;

struct NamedMap {
  const char* name;
  Result<json> (*measure)(const Run& run, const std::string& transport);
};
constexpr const char* kPaged = "std::unordered_map, paged";
constexpr NamedMap kMaps[] = {{"farside::hash_map", measure_objects_map<HashMap>},
                              {"farside::far_hash_map", measure_objects_map<FarHashMap>},
                              {kPaged, measure_paged_map}};
constexpr NamedMap kPlainMap = {"std::unordered_map", measure_plain_map};

std::vector<Measurement> measurements(const Setup& setup) {
  Run run{setup, std::make_shared<std::vector<pager::Trace>>()};
  auto keys = static_cast<pager::PageIndex>(run.count());
  for (double exponent : kExponents)
    run.traces->push_back(pager::zipf_trace(keys, exponent, 10 * setup.settings().accesses, 1));
  std::vector<Measurement> all;
  auto add = [&](const NamedMap& map, const std::string& transport, bool may_fail) {
    all.push_back({.key = {{"transport", transport}, {"configuration", map.name}},
                   .name = fmt::format("{}, {}", map.name, transport),
                   .run = [=, &map] { return map.measure(run, transport); },
                   .may_fail = may_fail});
  };
  add(kPlainMap, kNative, false);
  for (const char* transport : kTransports) {
    for (const NamedMap& map : kMaps) add(map, transport, false);
  }
  if (setup.swap()) add(kPlainMap, kSwap, true);
  return all;
}

}  // namespace

// Objects are not slower than pages at any exponent. The charts are without the native map: its rates are so high that
// the other curves would be flat.
Suite map_suite() {
  auto rates = [](const char* title, const char* transport) {
    return chart(title, "Zipf's exponent", "thousand look-ups/s", "exponent", {"lookups_per_s"},
                 {"configuration", "fibers"})
        .in(1000)
        .of({{"transport", transport}})
        .up_to(1.4);
  };
  return {.name = "map",
          .measurements = measurements,
          .tables = {table("thousand look-ups a second, by Zipf's exponent (0 fibers: a thread)",
                           {"configuration", "transport", "fibers"}, {col("", "lookups_per_s", 0, 1000)})
                         .by("exponent")},
          .targets = {goal("hash_map against the paged map, {transport}, {fibers} fibers, at its worst exponent",
                           "lookups_per_s", at_least(1), {{"configuration", kMaps[0].name}})
                          .over("lookups_per_s", {{"configuration", kPaged}})
                          .at_worst("exponent")},
          .charts = {rates("Hash maps, shm, by fibers", "shm"), rates("Hash maps, tcp, by fibers", "tcp")}};
}

}  // namespace farside::bench::objects_bench
