// A case of the program `offload`: functions that follow owners inside far objects.
#include <farside/containers/offload_algorithms.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "offload_cases.h"

namespace {

struct Name {
  char text[24];
};
// A node of a search tree; each has a list of values, and a name in another data structure.
struct Value {
  uint64_t value;
  farside::unique_ptr<Value> next;
};
struct TreeNode {
  uint64_t key;
  farside::unique_ptr<TreeNode> below, above;
  farside::unique_ptr<Value> values;
  farside::unique_ptr<Name> name;
};

}  // namespace

template <>
struct farside::far_pointers<Value> : farside::fields<&Value::next> {};
template <>
struct farside::far_pointers<TreeNode>
    : farside::fields<&TreeNode::below, &TreeNode::above, &TreeNode::values, &TreeNode::name> {};

namespace {

using Lookup = std::pair<const TreeNode*, uint64_t>;
const TreeNode* find_node(const Lookup& l, const farside::deref_scope& scope) {
  const TreeNode* at = l.first;
  while (at && at->key != l.second) at = (l.second < at->key ? at->below : at->above).get_if(scope);
  return at;
}
// The sum of the values of a key; 0 if there is none.
uint64_t sum_of_key(const Lookup& l) {
  farside::deref_scope scope;
  const TreeNode* node = find_node(l, scope);
  uint64_t sum = 0;
  for (const Value* v = node ? node->values.get_if(scope) : nullptr; v; v = v->next.get_if(scope)) sum += v->value;
  return sum;
}
std::string name_of_key(const Lookup& l) {
  farside::deref_scope scope;
  const TreeNode* node = find_node(l, scope);
  return node ? node->name.deref(scope)->text : "";
}
// Keys in order, and the sum of all values.
std::pair<uint64_t, uint64_t> walk_tree(const TreeNode* const& root) {
  farside::deref_scope scope;
  std::vector<const TreeNode*> path;
  std::pair<uint64_t, uint64_t> all = {0, 0};
  for (const TreeNode* at = root; at || !path.empty();) {
    for (; at; at = at->below.get_if(scope)) path.push_back(at);
    at = path.back();
    path.pop_back();
    all.first = all.first * 31 + at->key;
    for (const Value* v = at->values.get_if(scope); v; v = v->next.get_if(scope)) all.second += v->value;
    at = at->above.get_if(scope);
  }
  return all;
}

struct Tree {
  farside::structure entries{{64 << 20, nullptr, 0}}, names{{16 << 20, nullptr, 0}};
  farside::unique_ptr<TreeNode> root;
  std::unordered_map<uint64_t, std::vector<uint64_t>> plain;

  void insert(uint64_t key, std::initializer_list<uint64_t> values) {
    farside::deref_scope scope;
    farside::unique_ptr<TreeNode>* at = &root;
    while (*at) {
      TreeNode* node = at->deref_mut(scope);
      if (node->key == key) break;
      at = key < node->key ? &node->below : &node->above;
    }
    if (!*at) {
      *at = farside::make_unique_in<TreeNode>(entries);
      TreeNode* fresh = at->deref_mut(scope);
      fresh->key = key;
      fresh->name = farside::make_unique_in<Name>(names);
      snprintf(fresh->name.deref_mut(scope)->text, sizeof(Name), "node %lu", key);
    }
    TreeNode* node = at->deref_mut(scope);
    for (uint64_t value : values) {
      auto first = farside::make_unique_in<Value>(entries);
      first.deref_mut(scope)->value = value;
      first.deref_mut(scope)->next = std::move(node->values);
      node->values = std::move(first);
      plain[key].push_back(value);
    }
  }
};

// Calls while the program itself has stopped moves, and a fork meanwhile: the child's objects are moved again.
void several_calls(const Tree& tree, offload::mode mode) {
  std::optional<farside::moves_stopped> stopped(std::in_place, tree.entries);
  for (int i = 0; i < 20; i++) {
    farside::deref_scope scope;
    auto sum = offload::call(sum_of_key, {tree.root.address(scope), 3}, {tree.entries}, {}, mode);
    if (!check(sum, "sum") || *sum != sum_of_key({tree.root.deref(scope), 3})) printf("several calls\n");
  }
  auto look_up = [&] {
    uint64_t sums = 0;
    for (uint64_t key = 0; key < 1000; key++) {
      farside::deref_scope scope;
      sums += sum_of_key({tree.root.deref(scope), key * 20});
    }
    return sums;
  };
  uint64_t before = look_up();
  fflush(stdout);
  pid_t child = fork();
  stopped.reset();
  bool is_same = look_up() == before;
  if (child == 0) _exit(is_same ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  printf("%d %d\n", is_same, status);
}

// All of a tree, objects of no structure, and what fails.
void other_calls(const Tree& tree, offload::mode mode) {
  farside::deref_scope scope;
  auto all = offload::call(walk_tree, tree.root.address(scope), {tree.entries}, {}, mode);
  printf("%d\n", check(all, "all") && *all == walk_tree(tree.root.address(scope)));
  auto plain = farside::make_unique<Value>(Value{8, farside::make_unique<Value>(Value{9, nullptr})});
  uint64_t (*second)(const Value* const&) = [](const Value* const& first) {
    farside::deref_scope here;
    return first->next.deref(here)->value;
  };
  auto value = offload::call(second, plain.address(scope), {offload::range::plain_objects()}, {}, mode);
  printf("%d\n", check(value, "plain") && *value == 9);
  auto written = offload::call(second, plain.address(scope), {}, {tree.entries}, mode);
  printf("%d\n", written.error().code == EINVAL);
  if (mode == offload::mode::server) {
    auto unnamed =
        offload::call(name_of_key, {tree.root.address(scope), tree.plain.begin()->first}, {tree.entries}, {}, mode);
    if (unnamed.error().code != EFAULT) printf("not named: %d\n", unnamed.error().code);
    offload::range unknown = tree.names;
    unknown.structures = 1 << 9;
    auto missing = offload::call(second, plain.address(scope), {unknown}, {}, mode);
    if (missing.error().code != EINVAL) printf("does not exist: %d\n", missing.error().code);
  }
}

}  // namespace

namespace cases {

// A function that looks keys up in a tree, while another thread uses all of its objects, so that they are moved.
void owners() {
  auto mode = offload::available() ? offload::mode::server : offload::mode::local;
  Tree tree;
  std::mt19937_64 random(5);
  for (int i = 0; i < 40000; i++) tree.insert(random() % 60000, {random() % 1000, 1, 2, 3, 4});
  std::atomic<bool> ends{false};
  std::mutex inserting;
  std::thread other([&] {
    for (std::mt19937_64 order(6); !ends;) {
      for (int i = 0; i < 200; i++) {
        std::lock_guard hold(inserting);
        farside::deref_scope scope;
        sum_of_key({tree.root.deref(scope), order() % 60000});
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int round = 0; round < 300; round++) {
    uint64_t key = random() % 62000;
    auto found = tree.plain.find(key);
    uint64_t expected = 0;
    if (found != tree.plain.end()) expected = std::accumulate(found->second.begin(), found->second.end(), uint64_t{0});
    farside::deref_scope scope;
    auto sum = offload::call(sum_of_key, {tree.root.address(scope), key}, {tree.entries}, {}, mode);
    auto name = offload::call(name_of_key, {tree.root.address(scope), key}, {tree.entries, tree.names}, {}, mode);
    if (!check(sum, "sum") || *sum != expected) printf("key %lu: %lu\n", key, expected);
    if (!check(name, "name") || *name != (expected ? "node " + std::to_string(key) : "")) printf("name %lu\n", key);
    std::lock_guard hold(inserting);
    if (round % 10 == 0) tree.insert(key, {7});
  }
  other_calls(tree, mode);
  several_calls(tree, mode);
  ends = true;
  other.join();
  farside_object_stats stats;
  if (farside_get_object_stats(&stats) == 0)
    fprintf(stderr, "%lu fetched alone, %lu moved\n", stats.taken, stats.moved);
}

}  // namespace cases
