// Queries on far memory that are offloaded to the memory server, or not: an aggregate, a filter, a gather, chains of
// pointers and of far objects, single words, look-ups in a map, and a count in a vector of far objects. `farside bench
// offload` runs it.
//
//   offload_queries BYTES REPETITIONS MODE...      modes: local, server, automatic
//
// Prints a line for each query and mode: NAME MODE SECONDS, the median of the repetitions, in which the modes
// alternate, after one repetition that is not counted. What the mode before has left near and dirty is not counted
// either: each repetition on a server follows another one. Every result is compared with that of the first mode.
#include <farside/containers/offload_algorithms.hpp>
#include <farside/containers/remote_hash_map.hpp>
#include <farside/offload_algorithms.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace offload = farside::offload;

namespace {

constexpr size_t kPart = 1 << 22;                     // words of one call of the filter
constexpr size_t kGathered = 20'000;                  // words
constexpr size_t kGatheredInto = 100'000;             // words, in far memory
constexpr size_t kEntries = 200'000, kLookUps = 500;  // of the map
constexpr size_t kWords = 500;                        // single ones, a call each
constexpr size_t kChains = 500;                       // of kLinks links each, one call each
constexpr unsigned kLinks = 8;
constexpr size_t kRecordBytes = 1024;  // of a far object in a chain
constexpr uint64_t kOneInHundred = ~uint64_t{0} / 100;

struct Record {
  farside::unique_ptr<Record> next;
  uint64_t value;
  char rest[kRecordBytes - 16];
};

}  // namespace

template <>
struct farside::far_pointers<Record> : farside::fields<&Record::next> {};

namespace {

struct Column {
  const uint64_t* first;
  size_t count;
};

uint64_t aggregate(const Column& column) {
  return std::accumulate(column.first, column.first + column.count, uint64_t{0});
}

std::vector<uint32_t> filter(const Column& column) {
  std::vector<uint32_t> found;
  for (size_t i = 0; i < column.count; i++) {
    if (column.first[i] < kOneInHundred) found.push_back(static_cast<uint32_t>(i));
  }
  return found;
}

std::vector<uint64_t> gather(const std::pair<Column, std::vector<uint32_t>>& arguments) {
  std::vector<uint64_t> values;
  values.reserve(arguments.second.size());
  for (uint32_t at : arguments.second) values.push_back(arguments.first.first[at]);
  return values;
}

// The value of a word is the next one's position.
uint64_t follow(const std::pair<Column, uint64_t>& arguments) {
  const Column& column = arguments.first;
  uint64_t at = arguments.second;
  for (unsigned i = 0; i < kLinks; i++) at = column.first[at % column.count];
  return at;
}

uint64_t follow_owners(const Record* const& first) {
  farside::deref_scope scope;
  uint64_t sum = 0;
  for (const Record* at = first; at; at = at->next.get_if(scope)) sum += at->value;
  return sum;
}

uint64_t word_at(const std::pair<Column, uint64_t>& arguments) { return arguments.first.first[arguments.second]; }

bool is_below(const uint64_t& word, const uint64_t& limit) { return word < limit; }

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44d;
  return x ^ (x >> 33);
}

class Queries {
 public:
  explicit Queries(size_t bytes) : count_(bytes / 8), records_({bytes, nullptr, 0}) {
    words_ = map(bytes);
    for (size_t i = 0; i < count_; i++) words_[i] = mix(i);
    map_.reserve(kEntries, offload::mode::local);
    for (uint64_t key = 0; key < kEntries; key++) map_.insert(key, mix(key), offload::mode::local);
    for (size_t i = 0; i < count_ / 4; i++) vector_.push_back(mix(i));
    make_records(bytes / 2 / kRecordBytes / kLinks);
    far_positions_ = reinterpret_cast<uint32_t*>(map(kGatheredInto * sizeof(uint32_t)));
    gathered_ = map(kGatheredInto * sizeof(uint64_t));
    for (size_t i = 0; i < kGatheredInto; i++) far_positions_[i] = static_cast<uint32_t>(mix(i) % count_);
    for (size_t i = 0; i < kGathered; i++) positions_.push_back(static_cast<uint32_t>(mix(i + count_) % count_));
  }

  uint64_t run(const std::string& name, offload::mode where) {
    if (name == "aggregate") return offload::call(aggregate, all(), ranges(), {}, where).value();
    if (name == "gather") {
      auto values = offload::call(gather, {all(), positions_}, ranges(), {}, where).value();
      return std::accumulate(values.begin(), values.end(), uint64_t{0});
    }
    if (name == "gather into") {
      offload::gather(words_, count_, far_positions_, kGatheredInto, gathered_, where).value();
      return offload::call(aggregate, {gathered_, kGatheredInto}, {{gathered_, kGatheredInto}}, {}, where).value();
    }
    if (name == "far vector") return offload::count_if(vector_, is_below, kOneInHundred, where).value();
    uint64_t sum = 0;
    if (name == "filter, 1 %") {
      for (size_t at = 0; at < count_; at += kPart) {
        Column part = {words_ + at, std::min(kPart, count_ - at)};
        auto found = offload::call(filter, part, {{part.first, part.count}}, {}, where).value();
        for (uint32_t i : found) sum += at + i;
      }
    } else if (name == "map look-up") {
      for (size_t i = 0; i < kLookUps; i++) sum += *map_.find(mix(i + turn_) % kEntries, where);
    } else if (name == "chain of 8 objects") {
      std::optional<farside::moves_stopped> stopped;
      if (where != offload::mode::local) stopped.emplace(records_);
      for (size_t i = 0; i < kChains; i++) {
        farside::deref_scope scope;
        const Record* first = chains_[mix(i + turn_) % chains_.size()].address(scope);
        sum += offload::call(follow_owners, first, {records_}, {}, where).value();
      }
    } else if (name == "one word") {
      for (size_t i = 0; i < kWords; i++)
        sum += offload::call(word_at, {all(), mix(i + turn_) % count_}, ranges(), {}, where).value();
    } else {
      for (size_t i = 0; i < kChains; i++)
        sum += offload::call(follow, {all(), mix(i + turn_)}, ranges(), {}, where).value();
    }
    return sum;
  }
  // Other chains and words than those that were used before.
  void next_turn() { turn_ += std::max({kChains, kWords, kLookUps}); }

 private:
  static uint64_t* map(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(2);
    return static_cast<uint64_t*>(memory);
  }
  // Chains whose objects are scattered.
  void make_records(size_t chains) {
    std::vector<farside::unique_ptr<Record>> all(chains * kLinks);
    for (auto& record : all) record = farside::make_unique_in<Record>(records_);
    std::vector<uint32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    chains_.resize(chains);
    for (size_t i = 0; i < all.size(); i++) {
      farside::deref_scope scope;
      Record* record = all[order[i]].deref_mut(scope);
      record->value = mix(i);
      record->next = std::move(chains_[i / kLinks]);
      chains_[i / kLinks] = std::move(all[order[i]]);
    }
  }
  Column all() const { return {words_, count_}; }
  offload::ranges ranges() const { return {{words_, count_}}; }

  const size_t count_;
  uint64_t* words_;
  uint32_t* far_positions_;
  uint64_t* gathered_;
  std::vector<uint32_t> positions_;
  size_t turn_ = 0;
  farside::remote_hash_map<uint64_t, uint64_t> map_;
  farside::vector<uint64_t> vector_;
  farside::structure records_;
  std::vector<farside::unique_ptr<Record>> chains_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool measure(Queries& queries, const std::string& name, int repetitions, const std::vector<std::string>& modes) {
  const std::map<std::string, offload::mode> kModes = {
      {"local", offload::mode::local}, {"server", offload::mode::server}, {"automatic", offload::mode::automatic}};
  bool changes = name == "chain of 8" || name == "chain of 8 objects" || name == "one word" || name == "map look-up";
  std::map<std::string, std::vector<double>> seconds;
  for (int repetition = 0; repetition <= repetitions; repetition++) {
    uint64_t expected = 0;
    for (const std::string& mode : modes) {
      if (mode != "local") queries.run(name, kModes.at(mode));
      if (changes) queries.next_turn();
      auto begin = std::chrono::steady_clock::now();
      uint64_t result = queries.run(name, kModes.at(mode));
      double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (repetition > 0) seconds[mode].push_back(taken);
      if (mode == modes[0]) expected = result;
      else if (!changes && result != expected) return fprintf(stderr, "%s: results differ\n", name.c_str()), false;
    }
  }
  for (const std::string& mode : modes) printf("%s\t%s\t%.9f\n", name.c_str(), mode.c_str(), median(seconds[mode]));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || atoi(argv[2]) < 1) return fprintf(stderr, "usage: offload_queries BYTES REPETITIONS MODE...\n"), 2;
  Queries queries(strtoull(argv[1], nullptr, 10));
  for (const char* name : {"aggregate", "filter, 1 %", "gather", "gather into", "chain of 8", "chain of 8 objects",
                           "one word", "map look-up", "far vector"}) {
    if (!measure(queries, name, atoi(argv[2]), {argv + 3, argv + argc})) return 1;
  }
}
