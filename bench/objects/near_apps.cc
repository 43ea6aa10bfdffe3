// The cost of far types in programs while everything is near. Each program is a template that runs with the
// containers and pointers of the standard library and with those of Farside, alternating. Both must compute the same
// result.
#include <fmt/format.h>

#include <memory>
#include <span>

#include "base/clock.h"
#include "base/log.h"
#include "bench/objects/lines.h"
#include "farside/containers/vector.hpp"
#include "measure/random.h"
#include "measure/statistics.h"

namespace farside::bench::objects_bench {
namespace {

using nlohmann::json;

constexpr unsigned kRuns = 5;

// ---- The two kinds of types: those of the standard library get the interface of the far ones ----

struct NoScope {
  NoScope() {}  // user-provided, so that an unused scope causes no warning
};

template <typename T>
struct StdPointer : std::unique_ptr<T> {
  using std::unique_ptr<T>::unique_ptr;
  const T* deref(const NoScope&) const { return this->get(); }
  T* deref_mut(const NoScope&) { return this->get(); }
};
template <typename T>
struct StdVector : std::vector<T> {
  using std::vector<T>::vector;
  template <typename F>
  void for_each_chunk(size_t begin, size_t end, F f) const {
    f(std::span<const T>(*this).subspan(begin, end - begin));
  }
};

struct StdKind {
  using Scope = NoScope;
  template <typename T>
  using Pointer = StdPointer<T>;
  template <typename T>
  using Column = StdVector<T>;
  template <typename T>
  static StdPointer<T> make(T&& value) {
    return StdPointer<T>(new T(std::move(value)));
  }
};

struct FarKind {
  using Scope = deref_scope;
  template <typename T>
  using Pointer = unique_ptr<T>;
  template <typename T>
  using Column = vector<T>;
  template <typename T>
  static unique_ptr<T> make(T&& value) {
    return make_unique<T>(std::move(value));
  }
};

// ---- A data frame (AIFM 8.1): rides grouped by passengers, and the long ones counted ----

template <typename Kind>
class DataFrame {
 public:
  explicit DataFrame(const Settings& s) : rows_(s.bytes / 2 / sizeof(uint64_t)) {
    Random random(1);
    for (uint64_t i = 0; i < rows_; i++) {
      passengers_.push_back(random.next() % kGroups);
      metres_.push_back(random.next() % 40000);
    }
  }
  uint64_t operations() const { return rows_; }
  uint64_t run() const {
    uint64_t sums[kGroups] = {}, longest = 0, row = 0;
    passengers_.for_each_chunk(0, rows_, [&](std::span<const uint64_t> passengers) {
      const uint64_t* group = passengers.data();
      metres_.for_each_chunk(row, row + passengers.size(), [&](std::span<const uint64_t> metres) {
        for (uint64_t m : metres) sums[*group++] += m;
      });
      row += passengers.size();
    });
    metres_.for_each_chunk(0, rows_, [&](std::span<const uint64_t> metres) {
      for (uint64_t m : metres) longest += m > 30000;
    });
    uint64_t digest = longest;
    for (uint64_t sum : sums) digest = digest * 31 + sum;
    return digest;
  }

 private:
  static constexpr uint64_t kGroups = 8;
  uint64_t rows_;
  typename Kind::template Column<uint64_t> passengers_, metres_;
};

// ---- A binary tree, built from keys in random order ----

template <typename Kind>
struct Node {
  uint64_t key, value;
  typename Kind::template Pointer<Node> left, right;
  uint64_t more[4];
};

}  // namespace
}  // namespace farside::bench::objects_bench

using FarNode = farside::bench::objects_bench::Node<farside::bench::objects_bench::FarKind>;
template <>
struct farside::far_pointers<FarNode> : farside::fields<&FarNode::left, &FarNode::right> {};

namespace farside::bench::objects_bench {
namespace {

template <typename Kind>
class Tree {
 public:
  explicit Tree(const Settings& s) : nodes_(s.bytes / 2 / sizeof(Node)), lookups_(s.accesses) {
    for (uint64_t i = 0; i < nodes_; i++) insert(key_of(i), i);
  }
  uint64_t operations() const { return lookups_; }
  uint64_t run() const {
    Random random(5);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < lookups_; i++) sum += find(key_of(random.next() % nodes_));
    return sum;
  }

 private:
  using Node = objects_bench::Node<Kind>;
  using Pointer = typename Kind::template Pointer<Node>;
  static uint64_t key_of(uint64_t i) { return Random(i + 1).next(); }

  void insert(uint64_t key, uint64_t value) {
    typename Kind::Scope scope;
    Pointer* at = &root_;
    while (*at) {
      Node* node = at->deref_mut(scope);
      at = key < node->key ? &node->left : &node->right;
    }
    *at = Kind::make(Node{key, value, {}, {}, {}});
  }
  uint64_t find(uint64_t key) const {
    typename Kind::Scope scope;
    const Node* node = root_.deref(scope);
    while (node->key != key) node = (key < node->key ? node->left : node->right).deref(scope);
    return node->value;
  }

  uint64_t nodes_, lookups_;
  Pointer root_;
};

// ---- Both kinds, alternating ----

template <typename App>
double time_run(const App& app, uint64_t* result) {
  uint64_t begin = ticks();
  *result = app.run();
  return static_cast<double>(ticks() - begin) * 1000 / ticks_per_us() / static_cast<double>(app.operations());
}

template <template <typename> typename App>
Result<json> measure(const Setup& setup) {
  FarMemoryConfig config = setup.far("shm");
  config.bytes = 0;
  config.local = config.more_bytes = 4 * setup.settings().bytes;
  auto far = open_with_objects(config);
  if (!far.ok()) return far.status();
  App<StdKind> with_std(setup.settings());
  App<FarKind> with_far(setup.settings());
  std::vector<double> std_ns, far_ns, ratios;
  for (unsigned i = 0; i < kRuns; i++) {
    uint64_t expected = 0, result = 0;
    std_ns.push_back(time_run(with_std, &expected));
    far_ns.push_back(time_run(with_far, &result));
    if (result != expected) die("far types compute {:#x}, std types {:#x}", result, expected);
    ratios.push_back(far_ns.back() / std_ns.back());
  }
  return json{{"std_ns", median(std_ns)}, {"far_ns", median(far_ns)}, {"ratio", median(ratios)}};
}

struct NamedApp {
  const char* name;
  Result<json> (*measure)(const Setup& setup);
};
constexpr NamedApp kApps[] = {{"data frame", measure<DataFrame>}, {"binary tree", measure<Tree>}};

}  // namespace

Suite near_apps_suite() {
  auto measure_app = [](const Setup& setup, const NamedApp& app) { return app.measure(setup); };
  return {.name = "near-apps",
          .measurements = each(measure_app, Axis{"app", kApps}),
          .tables = {table("all near, ns per operation", {"app"},
                           {col("std types", "std_ns"), col("far types", "far_ns"), col("ratio", "ratio", 2)})},
          .targets = {goal("{app}, all near: far types against std types", "ratio", at_most(1.08))}};
}

}  // namespace farside::bench::objects_bench
