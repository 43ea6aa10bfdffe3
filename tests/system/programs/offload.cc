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

#include "offload_cases.h"

namespace {

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
    for (size_t i = 0; i < 200; i++) {
      all.add();
      farside::spawn([&, part = words + i % 32 * 1000] {
        auto one = offload::call(sum, {part, 1000}, {{part, 1000}});
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
                           {"map", cases::map},
                           {"algorithms", cases::algorithms},
                           {"containers", cases::containers},
                           {"owners", cases::owners},
                           {"objects", objects}};

}  // namespace

int main(int argc, char** argv) {
  for (const Case& c : kCases) {
    if (argc < 2) printf("%s\n", c.name);
    else if (strcmp(argv[1], c.name) == 0) c.run();
  }
}
