// A program with far containers: fills, scans, searches and sorts them, in threads, in fibers and in a child process.
// Its output does not depend on where memory is; statistics go to stderr.
#include <farside/containers/array.hpp>
#include <farside/containers/far_hash_map.hpp>
#include <farside/containers/hash_map.hpp>
#include <farside/containers/list.hpp>
#include <farside/containers/queue.hpp>
#include <farside/containers/stack.hpp>
#include <farside/containers/vector.hpp>
#include <farside/fiber.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <thread>

namespace {

struct Record {
  uint64_t key = 0, filler[7] = {};
};
constexpr uint64_t kCount = 150000;

void print(const char* what, uint64_t value) { printf("%s %" PRIu64 "\n", what, value); }

void rows() {
  farside::vector<uint64_t> v;
  farside::list<uint64_t> l;
  farside::queue<uint64_t> q;
  farside::stack<uint64_t> s;
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < kCount; i++) {
    uint64_t x = random();
    v.push_back(x), l.push_front(x), q.push(x), s.push(x);
  }
  uint64_t same = 0;
  auto at = l.rbegin();
  for (uint64_t x : v) {
    same += x == *at++ && x == q.front();
    q.pop();
  }
  for (uint64_t x : l) {
    same += x == s.top();
    s.pop();
  }
  print("same", same);
  {
    farside::deref_scope scope;
    std::ranges::sort(v.in_mut(scope));
  }
  print("sorted", std::ranges::is_sorted(v));
}

void maps() {
  farside::array<Record, kCount, 1> records;
  farside::hash_map<uint64_t, Record> map;
  farside::far_hash_map<uint64_t, uint64_t> all_far;
  for (uint64_t i = 0; i < kCount; i++) {
    records.store(i, Record{i, {}});
    map.try_emplace(i * i, Record{i, {}});
    all_far.try_emplace(i * i, i);
  }
  uint64_t sums[4] = {};
  auto look = [&](uint64_t me) {
    std::mt19937_64 random(me);
    for (int round = 0; round < 40000; round++) {
      uint64_t i = random() % kCount;
      sums[me] += records[i].key + map.at(i * i).key + all_far.at(i * i) + all_far.contains(i * i + 1);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++) threads.emplace_back(look, t);
  for (auto& t : threads) t.join();
  for (uint64_t sum : sums) print("threads", sum);
  farside::run_fibers(2, [&] {
    std::vector<farside::fiber> fibers;
    for (uint64_t t = 0; t < 4; t++) fibers.emplace_back([&, t] { sums[t] = 0, look(t); });
  });
  for (uint64_t sum : sums) print("fibers", sum);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < kCount; i += 2) map.erase(i * i);
    map.for_each([&](uint64_t, const Record& r) { sum += r.key; });
    print("child", sum);
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  print("parent", map.size());
}

}  // namespace

int main() {
  rows();
  maps();
  farside_object_stats stats;
  int far = farside_get_object_stats(&stats) == 0;
  fprintf(stderr, "far=%d taken=%" PRIu64 "\n", far, stats.taken);
}
