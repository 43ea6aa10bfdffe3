// Calls functions on memory servers and locally, and prints the results, which do not depend on where they ran, to
// standard output; where they ran to standard error. Argument: the case.
#include <farside/containers/offload_algorithms.hpp>
#include <farside/containers/remote_hash_map.hpp>
#include <farside/offload_algorithms.hpp>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <farside/fiber.hpp>

namespace offload = farside::offload;

namespace {

constexpr size_t kWords = 4 << 20;  // 32 MiB

// Of the cases of which every call is to run on a server.
offload::mode where() { return getenv("OFFLOAD_ON_SERVER") ? offload::mode::server : offload::mode::automatic; }

uint64_t* far_words() {
  void* memory = mmap(nullptr, kWords * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* words = static_cast<uint64_t*>(memory);
  for (size_t i = 0; i < kWords; i++) words[i] = i * 2654435761u % 1000;
  return words;
}

struct Column {
  const uint64_t* first;
  size_t count;
};
uint64_t sum(const Column& column) {
  uint64_t all = 0;
  for (size_t i = 0; i < column.count; i++) all += column.first[i];
  return all;
}

std::vector<uint64_t> find(const std::pair<Column, std::vector<uint64_t>>& arguments) {
  std::vector<uint64_t> found;
  for (size_t i = 0; i < arguments.first.count; i++) {
    for (uint64_t wanted : arguments.second) {
      if (arguments.first.first[i] == wanted) found.push_back(i);
    }
  }
  return found;
}

struct Fill {
  uint64_t* first;
  size_t count;
  uint64_t value;
};
void fill(const Fill& f) {
  for (size_t i = 0; i < f.count; i++) f.first[i] += f.value;
}

struct Node {
  const Node* next;
  uint64_t value;
};
uint64_t walk(const Node* const& first) {
  uint64_t all = 0;
  for (const Node* at = first; at; at = at->next) all = all * 31 + at->value;
  return all;
}

std::string throws(int value) { throw std::runtime_error("no result for " + std::to_string(value)); }
int crashes(int value) { return *reinterpret_cast<volatile int*>(uintptr_t(value)); }

template <typename R>
bool check(const offload::result<R>& result, const char* what) {
  if (result) fprintf(stderr, "%s: %s\n", what, result.on_server() ? "server" : "local");
  else fprintf(stderr, "%s: error %d: %s\n", what, result.error().code, result.error().text.c_str());
  return static_cast<bool>(result);
}

void scan() {
  uint64_t* words = far_words();
  auto all = offload::call(sum, {words, kWords}, {{words, kWords}}, {}, where());
  if (check(all, "sum")) printf("sum %lu\n", *all);
  auto found = offload::call(find, {{words, 100000}, {7, 999}}, {{words, 100000}}, {}, where());
  if (check(found, "find")) printf("find %zu %lu\n", found->size(), found->back());
  words[3] += 1000;  // near and dirty
  auto again = offload::call(sum, {words, kWords}, {{words, kWords}}, {}, where());
  if (check(again, "again")) printf("again %lu\n", *again);
  auto part = offload::call([](Column c) { return sum(c) * 2; }, {words + 5, 10}, {{words + 5, 10}}, {}, where());
  if (check(part, "lambda")) printf("lambda %lu\n", *part);
  auto none = offload::call([](int i) { return i + 1; }, 41, {}, {}, where());
  if (check(none, "none")) printf("none %d\n", *none);
  auto parts = offload::for_each_server(
      [](int, const uint64_t* first, size_t count) {
        return sum({first, count});
      },
      0, words, kWords, [](uint64_t a, uint64_t b) { return a + b; }, {}, where());
  if (check(parts, "for_each")) printf("for_each %lu\n", *parts);
}

void change() {
  uint64_t* words = far_words();
  auto done = offload::call(fill, {words + 100, 1 << 20, 5}, {}, {{words + 100, 1 << 20}}, where());
  if (check(done, "fill")) printf("%lu\n", sum({words, kWords}));
  words[100] = 1;
  auto more = offload::call(fill, {words + 100, 1 << 20, 6}, {}, {{words + 100, 1 << 20}}, where());
  if (check(more, "more")) printf("%lu %lu\n", sum({words, kWords}), words[100]);
}

// Neighbours on the pages of written ranges are accessed meanwhile.
void share() {
  uint64_t* words = far_words();
  std::atomic<bool> done{false};
  uint64_t before = words[2000], rounds = 0;
  std::thread neighbour([&] {
    while (!done) words[2000]++, rounds++;
  });
  for (int i = 0; i < 200; i++) {
    auto one = offload::call(fill, {words + 1024, 900, 1}, {}, {{words + 1024, 900}});
    if (!one) check(one, "fill");
  }
  done = true;
  neighbour.join();
  printf("%d %lu\n", words[2000] == before + rounds, sum({words + 1024, 900}));
}

void list() {
  auto* nodes = reinterpret_cast<Node*>(far_words());
  size_t count = kWords * 8 / sizeof(Node);
  const Node* first = nullptr;
  for (size_t i = 0; i < 1000; i++) {
    Node* node = &nodes[i * 7919 % count];
    *node = {first, i};
    first = node;
  }
  auto all = offload::call(walk, first, {{nodes, count}}, {}, where());
  if (check(all, "walk")) printf("%lu\n", *all);
}

void errors() {
  uint64_t* words = far_words();
  auto thrown = offload::call(throws, 7, {{words, 10}});
  printf("%d %s\n", thrown.error().code == ECANCELED, thrown.error().text.c_str());
  if (offload::available()) {
    auto crashed = offload::call(crashes, 16, {{words, 10}}, {}, offload::mode::server);
    fprintf(stderr, "crash: %d %s\n", crashed.error().code, crashed.error().text.c_str());
    auto outside = offload::call(sum, {words, 4096}, {{words, 512}}, {}, offload::mode::server);
    fprintf(stderr, "outside: %d %s\n", outside.error().code, outside.error().text.c_str());
  }
  int near = 5;
  auto local = offload::call(sum, {reinterpret_cast<uint64_t*>(&near), 0}, {{&near, 1}});
  printf("%d\n", local && !local.on_server());
  auto after = offload::call(sum, {words, 1000}, {{words, 1000}});
  if (check(after, "after")) printf("%lu\n", *after);
}

void fibers() {
  uint64_t* words = far_words();
  farside::run_fibers(2, [&] {
    farside::wait_group all;
    std::atomic<uint64_t> sums{0};
    for (size_t i = 0; i < 32; i++) {
      all.add();
      farside::spawn([&, i] {
        auto one = offload::call(sum, {words + i * 1000, 1000}, {{words + i * 1000, 1000}});
        if (one) sums += *one;
        all.done();
      });
    }
    all.wait();
    printf("%lu\n", sums.load());
  });
  std::vector<offload::pending<uint64_t>> calls;
  for (size_t i = 0; i < 8; i++)
    calls.push_back(offload::async(sum, {words + i * 1000, 1000}, {{words + i * 1000, 1000}}));
  uint64_t sums = 0;
  for (auto& call : calls) sums += call.get().value();
  printf("%lu\n", sums);
}

void forks() {
  uint64_t* words = far_words();
  auto before = offload::call(sum, {words, kWords}, {{words, kWords}});
  if (check(before, "before")) printf("%lu\n", *before);
  fflush(stdout);
  int printed[2];
  if (pipe(printed) != 0) return;
  pid_t child = fork();
  words[0] += child ? 1 : 2;
  char end = 0;
  if (child == 0 && read(printed[0], &end, 1) != 1) _exit(1);
  auto both = offload::call(sum, {words, kWords}, {{words, kWords}});
  if (check(both, child ? "parent" : "child")) printf("%lu\n", *both);
  fflush(stdout);
  if (child == 0) _exit(0);
  if (write(printed[1], &end, 1) != 1) return;
  waitpid(child, nullptr, 0);
  auto after = offload::call(sum, {words, kWords}, {{words, kWords}});
  if (check(after, "after")) printf("%lu\n", *after);
}

// Threads that change words of the same pages, near or by calls, and compare all of theirs with a shadow copy.
constexpr size_t kStormWords = 1 << 19, kThreads = 3;
struct Step {
  uint64_t* first;  // every kThreads-th word belongs to the thread
  size_t count;
  uint64_t value;
};
void add_step(const Step& s) {
  for (size_t i = 0; i < s.count; i++) s.first[i * kThreads] += s.value + i;
}
uint64_t sum_step(const Step& s) {
  uint64_t all = 0;
  for (size_t i = 0; i < s.count; i++) all += s.first[i * kThreads];
  return all;
}

bool storm_by(uint64_t* words, size_t thread, unsigned rounds) {
  std::vector<uint64_t> shadow(kStormWords);
  for (size_t i = thread; i < kStormWords; i += kThreads) shadow[i] = words[i];
  uint64_t random = thread + 1;
  auto next = [&random](size_t limit) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % limit;
  };
  for (unsigned round = 0; round < rounds; round++) {
    size_t count = 1 + next(3000), first = next(kStormWords / kThreads - count) * kThreads + thread;
    Step step = {words + first, count, next(1000)}, near = {shadow.data() + first, count, step.value};
    offload::ranges range = {{words + first, (count - 1) * kThreads + 1}};
    switch (next(4)) {
      case 0:
        add_step(step);
        add_step(near);
        break;
      case 1: {
        // In the gaps between the words of this thread, others write: the range is theirs, too, for reading only.
        auto sum = offload::call(sum_step, step, range);
        if (!sum || *sum != sum_step(near)) return check(sum, "sum"), false;
        break;
      }
      default: {
        auto done = thread == 0 ? offload::call(add_step, step, {}, range)
                                : offload::call(add_step, step, {}, {}, offload::mode::local);
        if (!done) return check(done, "add"), false;
        add_step(near);
      }
    }
  }
  for (size_t i = thread; i < kStormWords; i += kThreads) {
    if (words[i] != shadow[i]) return fprintf(stderr, "word %zu is %lu, not %lu\n", i, words[i], shadow[i]), false;
  }
  return true;
}

void storm() {
  const char* rounds = getenv("OFFLOAD_STORM_ROUNDS");
  uint64_t* words = far_words();
  std::atomic<unsigned> right{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] { right += storm_by(words, t, rounds ? static_cast<unsigned>(atoi(rounds)) : 300); });
  for (std::thread& thread : threads) thread.join();
  printf("%u\n", right.load());
}

// Sums the words for about as many nanoseconds.
uint64_t sum_slowly(const std::pair<Column, uint64_t>& arguments) {
  auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(arguments.second);
  uint64_t all = 0;
  do all = sum(arguments.first);
  while (std::chrono::steady_clock::now() < until);
  return all;
}

// Calls of several threads at a time.
void parallel() {
  constexpr size_t kCallers = 6;
  uint64_t* words = far_words();
  std::atomic<unsigned> right{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kCallers; t++) {
    threads.emplace_back([&, t] {
      Column part = {words + t * 4096, 4096};
      for (int i = 0; i < 5; i++) {
        auto all = offload::call(sum_slowly, {part, 100'000'000}, {{part.first, part.count}}, {}, where());
        right += check(all, "sum") && *all == sum(part);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  printf("%u\n", right.load());
}

// Until a server is killed by another process; then one that has a copy executes the calls.
void replicas() {
  uint64_t* words = far_words();
  uint64_t expected = sum({words, kWords});
  puts("ready");
  fflush(stdout);
  for (int i = 0; i < 60; i++) {
    auto all = offload::call(sum, {words, kWords}, {{words, kWords}}, {}, offload::mode::server);
    if (!check(all, "sum") || *all != expected) return;
    usleep(50000);
  }
  puts("done");
}

// All results are compared with those of the standard library.
struct Wide {  // so that there are many pages
  uint64_t value, rest[14];
  bool operator==(uint64_t other) const { return value == other; }
};
void map() {
  farside::remote_hash_map<uint64_t, Wide> map;
  std::unordered_map<uint64_t, uint64_t> expected;
  uint64_t random = 1, wrong = 0;
  auto where = offload::available() ? offload::mode::server : offload::mode::local;
  auto add = [](Wide& wide, uint64_t by) { wide.value += by; };
  for (int i = 0; i < 4000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t key = (random >> 33) % 2000, value = random >> 40;
    auto mode = i % 3 == 0 ? offload::mode::automatic : where;
    switch (random >> 60) {
      case 0:
        wrong += map.erase(key, mode) != (expected.erase(key) == 1);
        break;
      case 1:
      case 2: {
        auto sum = map.update(key, add, value, mode);
        wrong += sum.has_value() != (expected.count(key) == 1);
        if (sum) wrong += !(*sum == (expected[key] += value));
        break;
      }
      case 3:
      case 4:
        wrong += map.insert_or_assign(key, {value, {}}, mode) != expected.insert_or_assign(key, value).second;
        break;
      case 5:
      case 6: {
        auto found = map.find(key, mode);
        wrong += found.has_value() != (expected.count(key) == 1) || (found && !(*found == expected[key]));
        break;
      }
      default:
        wrong += map.insert(key, {value, {}}, mode) != expected.emplace(key, value).second;
    }
  }
  std::vector<uint64_t> keys(2500);
  std::iota(keys.begin(), keys.end(), 0);
  auto values = map.find_all(keys, where);
  for (uint64_t key : keys)
    wrong += values[key].has_value() != (expected.count(key) == 1) || (values[key] && !(*values[key] == expected[key]));
  printf("%lu wrong, %d\n", wrong, map.size() == expected.size());
}

void algorithms() {
  uint64_t* words = far_words();
  constexpr size_t kCount = 100000;
  std::vector<uint64_t> plain(words, words + kCount);
  bool (*is_above)(const uint64_t&, const uint64_t&) = [](const uint64_t& v, const uint64_t& limit) {
    return v > limit;
  };
  uint64_t (*add)(uint64_t, const uint64_t&) = [](uint64_t all, const uint64_t& v) { return all * 3 + v; };
  auto expected = [&](uint64_t limit) {
    return std::count_if(plain.begin(), plain.end(), [=](uint64_t v) { return v > limit; });
  };
  auto count = offload::count_if(words, kCount, is_above, uint64_t{900});
  auto first = offload::find_if(words, kCount, is_above, uint64_t{998});
  auto none = offload::find_if(words, kCount, is_above, uint64_t{1000});
  auto all = offload::reduce(words, kCount, uint64_t{1}, add);
  printf("%d", check(count, "count_if") && *count == static_cast<size_t>(expected(900)));
  printf("%d", check(first, "find_if") && plain[*first] == 999 && *none == kCount);
  printf("%d", check(all, "reduce") && *all == std::accumulate(plain.begin(), plain.end(), uint64_t{1}, add));
  auto picked = offload::gather(words, kCount, {5, 70000, 5});
  printf("%d", check(picked, "gather") && *picked == std::vector<uint64_t>({plain[5], plain[70000], plain[5]}));
  std::vector<uint32_t> places(kCount / 8);
  for (uint32_t& place : places) place = static_cast<uint32_t>(random() % kCount);
  uint64_t* to = far_words();
  auto* far_places = reinterpret_cast<uint32_t*>(to + kCount);
  std::copy(places.begin(), places.end(), far_places);
  auto shuffled = offload::gather(words, kCount, far_places, places.size(), to);
  printf("%d", check(shuffled, "gather into") && std::equal(places.begin(), places.end(), to,
                                                            [&](uint32_t at, uint64_t v) { return v == plain[at]; }));
  auto moved = offload::copy(words, kCount, words + kCount / 2);
  std::copy_backward(plain.begin(), plain.begin() + kCount / 2, plain.end());
  printf("%d", check(moved, "copy") && std::equal(plain.begin(), plain.end(), words));
  auto sorted = offload::sort(words + 7, kCount - 7);
  std::sort(plain.begin() + 7, plain.end());
  printf("%d\n", check(sorted, "sort") && std::equal(plain.begin(), plain.end(), words));
}

// Compares count_if, find_if and reduce with the same on a plain vector.
template <typename C>
void compare(const char* name, const C& container, const std::vector<uint64_t>& plain, offload::mode mode) {
  bool (*is_above)(const uint64_t&, const uint64_t&) = [](const uint64_t& v, const uint64_t& limit) {
    return v > limit;
  };
  uint64_t (*add)(uint64_t, const uint64_t&) = [](uint64_t all, const uint64_t& v) { return all * 3 + v; };
  auto above = [](uint64_t limit) { return [limit](uint64_t v) { return v > limit; }; };
  auto count = offload::count_if(container, is_above, 900, mode);
  auto first = offload::find_if(container, is_above, 9998, mode);
  auto none = offload::find_if(container, is_above, 10000, mode);
  auto all = offload::reduce(container, uint64_t{1}, add, mode);
  auto found = std::find_if(plain.begin(), plain.end(), above(9998)) - plain.begin();
  printf("%s %d", name,
         check(count, "count") && *count == size_t(std::count_if(plain.begin(), plain.end(), above(900))));
  printf("%d", check(first, "first") && *first == static_cast<size_t>(found));
  printf("%d", check(none, "none") && *none == plain.size());
  static uint64_t* copies = far_words();
  auto copied = offload::copy(container, copies + 3, mode);
  printf("%d", check(copied, "copy") && std::equal(plain.begin(), plain.end(), copies + 3));
  printf("%d\n", check(all, "reduce") && *all == std::accumulate(plain.begin(), plain.end(), uint64_t{1}, add));
}

// Containers of far objects, while other threads use theirs, so that objects are moved. What was changed before a call
// is near and dirty.
void containers() {
  auto mode = offload::available() ? offload::mode::server : offload::mode::local;
  std::mt19937_64 random(3);
  std::vector<uint64_t> plain(40000);
  for (uint64_t& v : plain) v = random() % 9999;
  plain[30000] = 9999;
  farside::vector<uint64_t> vector(plain.begin(), plain.end());
  farside::array<uint64_t> array(plain.size());
  farside::vector<uint64_t, 1> single(plain.begin(), plain.end());   // more pieces than a call may name
  farside::vector<uint64_t, 9000> huge(plain.begin(), plain.end());  // chunks of several pages
  farside::vector<uint64_t, 100> shuffled;                           // chunks at scattered places
  farside::list<uint64_t> list;
  for (size_t i = 0; i < plain.size(); i++) array.store(i, plain[i]);
  for (uint64_t v : plain) {
    shuffled.push_back(v);
    list.push_back(v);
  }
  std::atomic<bool> ends{false};
  std::thread other([&] {
    farside::vector<uint64_t, 4> own(100000, 7);
    for (std::mt19937_64 order(4); !ends;) {
      for (int i = 0; i < 1000; i++) own.store(order() % own.size(), 7);
      for (int i = 0; i < 1000; i++) shuffled.load(order() % shuffled.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  auto gather = [&](const auto& from, size_t count) {
    std::vector<size_t> indexes(count);
    for (size_t& index : indexes) index = random() % plain.size();
    auto values = offload::gather(from, indexes, mode);
    auto is_right = [&, i = size_t{0}](uint64_t value) mutable { return value == plain[indexes[i++]]; };
    printf("%d",
           check(values, "gather") && values->size() == count && std::all_of(values->begin(), values->end(), is_right));
  };
  for (int round = 0; round < 3; round++) {
    for (size_t count : {0, 200, 5000}) gather(vector, count), gather(single, count), gather(shuffled, count);
    gather(array, 70000);  // several calls
    printf(" gather\n");
    compare("vector", vector, plain, mode);
    compare("array", array, plain, mode);
    compare("single", single, plain, mode);
    compare("huge", huge, plain, mode);
    compare("shuffled", shuffled, plain, mode);
    compare("list", list, plain, mode);
    compare("local", list, plain, offload::mode::local);
    for (int i = 0; i < 50; i++) {
      size_t at = random() % 30000;
      plain[at] = random() % 9999;
      vector.store(at, plain[at]), array.store(at, plain[at]), single.store(at, plain[at]), huge.store(at, plain[at]);
      shuffled.store(at, plain[at]);
      auto after = list.erase(list.nth(at));
      list.insert(after, plain[at]);
    }
  }
  std::sort(plain.begin(), plain.end());
  auto sort = [&](auto& container, offload::mode how) {
    auto sorted = offload::sort(container, how);
    bool on_server = how == offload::mode::server;
    printf("%d", check(sorted, "sort") && sorted.on_server() == on_server && container.size() == plain.size());
    compare(" sorted", container, plain, mode);
  };
  sort(vector, mode), sort(single, mode), sort(shuffled, offload::mode::local), sort(list, mode), sort(array, mode);
  ends = true;
  other.join();
  farside::list<uint64_t> empty;
  compare("empty", empty, {}, offload::mode::automatic);
  printf("%d\n", check(offload::sort(empty, offload::mode::automatic), "sort") && empty.empty());
}

// ---- Functions that follow owners inside far objects ----

struct Name {
  char text[24];
};
// An entry of a search tree; each has a list of values, and a name in another data structure.
struct Value {
  uint64_t value;
  farside::unique_ptr<Value> next;
};
struct Entry {
  uint64_t key;
  farside::unique_ptr<Entry> below, above;
  farside::unique_ptr<Value> values;
  farside::unique_ptr<Name> name;
};

}  // namespace

template <>
struct farside::far_pointers<Value> : farside::fields<&Value::next> {};
template <>
struct farside::far_pointers<Entry> : farside::fields<&Entry::below, &Entry::above, &Entry::values, &Entry::name> {};

namespace {

using Lookup = std::pair<const Entry*, uint64_t>;
const Entry* find_entry(const Lookup& l, const farside::deref_scope& scope) {
  const Entry* at = l.first;
  while (at && at->key != l.second) at = (l.second < at->key ? at->below : at->above).get_if(scope);
  return at;
}
// The sum of the values of a key; 0 if there is none.
uint64_t sum_of_key(const Lookup& l) {
  farside::deref_scope scope;
  const Entry* entry = find_entry(l, scope);
  uint64_t sum = 0;
  for (const Value* v = entry ? entry->values.get_if(scope) : nullptr; v; v = v->next.get_if(scope)) sum += v->value;
  return sum;
}
std::string name_of_key(const Lookup& l) {
  farside::deref_scope scope;
  const Entry* entry = find_entry(l, scope);
  return entry ? entry->name.deref(scope)->text : "";
}
// Keys in order, and the sum of all values.
std::pair<uint64_t, uint64_t> walk_tree(const Entry* const& root) {
  farside::deref_scope scope;
  std::vector<const Entry*> path;
  std::pair<uint64_t, uint64_t> all = {0, 0};
  for (const Entry* at = root; at || !path.empty();) {
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
  farside::unique_ptr<Entry> root;
  std::unordered_map<uint64_t, std::vector<uint64_t>> plain;

  void insert(uint64_t key, std::initializer_list<uint64_t> values) {
    farside::deref_scope scope;
    farside::unique_ptr<Entry>* at = &root;
    while (*at) {
      Entry* entry = at->deref_mut(scope);
      if (entry->key == key) break;
      at = key < entry->key ? &entry->below : &entry->above;
    }
    if (!*at) {
      *at = farside::make_unique_in<Entry>(entries);
      Entry* fresh = at->deref_mut(scope);
      fresh->key = key;
      fresh->name = farside::make_unique_in<Name>(names);
      snprintf(fresh->name.deref_mut(scope)->text, sizeof(Name), "entry %lu", key);
    }
    Entry* entry = at->deref_mut(scope);
    for (uint64_t value : values) {
      auto first = farside::make_unique_in<Value>(entries);
      first.deref_mut(scope)->value = value;
      first.deref_mut(scope)->next = std::move(entry->values);
      entry->values = std::move(first);
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
    if (!check(name, "name") || *name != (expected ? "entry " + std::to_string(key) : "")) printf("name %lu\n", key);
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

// ---- Functions in shared objects: loaded, unloaded, replaced ----

int version_of(farside_offload_entry entry, farside_offload_mode mode) {
  int version = 0;
  farside_offload_request request = {entry, nullptr, nullptr, 0, nullptr, 0, mode};
  farside_offload_reply reply = {{&version, sizeof version, 0}, 0, 0, {}};
  int result = farside_offload_call(&request, &reply);
  if (result < 0) fprintf(stderr, "version: error %d: %s\n", result, reply.text);
  else fprintf(stderr, "version: %s\n", reply.on_server ? "server" : "local");
  return result < 0 ? result : version;
}

farside_offload_mode by_server() { return offload::available() ? FARSIDE_OFFLOAD_SERVER : FARSIDE_OFFLOAD_LOCAL; }

struct Library {
  explicit Library(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) fprintf(stderr, "%s\n", dlerror()), exit(1);
  }
  ~Library() { dlclose(handle); }
  farside_offload_entry entry() const {
    return reinterpret_cast<farside_offload_entry>(dlsym(handle, "offload_version"));
  }
  void* handle;
};

void replace(const std::string& path, const std::string& by) {
  std::string next = path + ".next";
  std::ofstream(next, std::ios::binary) << std::ifstream(by, std::ios::binary).rdbuf();
  if (rename(next.c_str(), path.c_str()) != 0) exit(1);
}

void objects() {
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) exit(1);
  std::string folder = program;
  folder.erase(folder.rfind('/'));
  std::string first = folder + "/liboffload_functions_1.so", second = folder + "/liboffload_functions_2.so";
  for (int round = 0; round < 10; round++) {  // the second is loaded where the first was
    printf("%d", version_of(Library(first).entry(), by_server()));
    printf("%d\n", version_of(Library(second).entry(), by_server()));
  }
  char temporary[] = "/tmp/offload_objects_XXXXXX";
  if (!mkdtemp(temporary)) exit(1);
  std::string path = std::string(temporary) + "/functions.so";
  replace(path, first);
  {
    Library loaded(path);
    replace(path, second);  // what is loaded is the first still
    bool refused = !offload::available() || version_of(loaded.entry(), FARSIDE_OFFLOAD_SERVER) == -ENOEXEC;
    printf("replaced %d %d\n", version_of(loaded.entry(), FARSIDE_OFFLOAD_AUTOMATIC), refused);
  }
  printf("loaded again %d\n", version_of(Library(path).entry(), by_server()));
  unlink(path.c_str());
  rmdir(temporary);
}

struct Case {
  const char* name;
  void (*run)();
};
constexpr Case kCases[] = {{"scan", scan},
                           {"change", change},
                           {"share", share},
                           {"list", list},
                           {"errors", errors},
                           {"fibers", fibers},
                           {"forks", forks},
                           {"storm", storm},
                           {"parallel", parallel},
                           {"replicas", replicas},
                           {"map", map},
                           {"algorithms", algorithms},
                           {"containers", containers},
                           {"owners", owners},
                           {"objects", objects}};

}  // namespace

int main(int argc, char** argv) {
  for (const Case& c : kCases) {
    if (argc < 2) printf("%s\n", c.name);
    else if (strcmp(argv[1], c.name) == 0) c.run();
  }
}
