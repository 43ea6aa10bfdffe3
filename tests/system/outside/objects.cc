// A program with far objects: single objects, lists, threads, fibers, garbage, and a child process. Its output does not
// depend on where memory is; statistics go to stderr.
#include <farside/fiber.hpp>
#include <farside/ptr.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

struct Record {
  uint64_t key = 0, sum = 0, filler[6] = {};
};

struct Node {
  uint64_t value = 0;
  farside::unique_ptr<Node> next;
};

}  // namespace

template <>
struct farside::far_pointers<Node> : farside::fields<&Node::next> {};

namespace {

constexpr uint64_t kRecords = 150000;
using Records = std::vector<farside::unique_ptr<Record>>;

uint64_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Reads and writes records [begin, end) in random order. Returns the sum of what was read.
uint64_t work(Records& records, uint64_t begin, uint64_t end, uint64_t rounds) {
  uint64_t state = begin, sum = 0;
  for (uint64_t i = 0; i < rounds; i++) {
    uint64_t at = begin + next_random(&state) % (end - begin);
    farside::deref_scope scope;
    Record* record = records[at].deref_mut(scope);
    if (record->key != at) {
      printf("record %" PRIu64 " has key %" PRIu64 "\n", at, record->key);
      exit(1);
    }
    sum += record->sum;
    record->sum += i;
  }
  return sum;
}

uint64_t sum_of(const Records& records) {
  uint64_t sum = 0;
  for (const auto& record : records) sum = sum * 31 + (record ? record.load().sum : 7);
  return sum;
}

void threads(Records& records) {
  constexpr unsigned kThreads = 3;
  uint64_t sums[kThreads];
  std::vector<std::thread> all;
  for (unsigned t = 0; t < kThreads; t++)
    all.emplace_back([&, t] { sums[t] = work(records, t * kRecords / 3, (t + 1) * kRecords / 3, 60000); });
  for (auto& thread : all) thread.join();
  printf("threads %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", sums[0], sums[1], sums[2]);
}

void fibers(Records& records) {
  constexpr unsigned kFibers = 16;
  uint64_t sums[kFibers];
  farside::run_fibers(2, [&] {
    std::vector<farside::fiber> all;
    for (unsigned f = 0; f < kFibers; f++)
      all.emplace_back([&, f] { sums[f] = work(records, f * kRecords / kFibers, (f + 1) * kRecords / kFibers, 5000); });
  });
  uint64_t sum = 0;
  for (uint64_t s : sums) sum = sum * 31 + s;
  printf("fibers %" PRIu64 "\n", sum);
}

void lists() {
  constexpr uint64_t kLists = 500, kLength = 100;
  std::vector<farside::unique_ptr<Node>> heads(kLists);
  for (uint64_t i = 0; i < kLists * kLength; i++) {
    auto node = farside::make_unique<Node>();
    farside::deref_scope scope;
    Node* n = node.deref_mut(scope);
    n->value = i;
    n->next = std::move(heads[i % kLists]);
    heads[i % kLists] = std::move(node);
  }
  uint64_t sum = 0;
  for (int round = 0; round < 3; round++) {
    for (auto& head : heads) {
      farside::deref_scope scope;
      for (const Node* node = head.deref(scope);; node = node->next.deref(scope)) {
        sum = sum * 31 + node->value;
        if (!node->next) break;
      }
    }
  }
  printf("lists %" PRIu64 "\n", sum);
}

void child(Records& records) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    uint64_t sum = sum_of(records);
    work(records, 0, kRecords, 10000);
    printf("child %" PRIu64 " %" PRIu64 "\n", sum, sum_of(records));
    fflush(stdout);
    _exit(0);
  }
  work(records, 0, kRecords, 10000);
  int status = 0;
  waitpid(pid, &status, 0);
  printf("child's status %d, parent %" PRIu64 "\n", status, sum_of(records));
}

}  // namespace

int main() {
  Records records(kRecords);
  for (uint64_t i = 0; i < kRecords; i++) records[i] = farside::make_unique<Record>(Record{i, i});
  threads(records);
  fibers(records);
  lists();
  for (uint64_t i = 0; i < kRecords; i++) {
    if (i % 8 != 0) records[i] = nullptr;
  }
  printf("survivors %" PRIu64 "\n", sum_of(records));
  for (uint64_t i = 0; i < kRecords; i++) {
    if (!records[i]) records[i] = farside::make_unique<Record>(Record{i, i});
  }
  child(records);
  farside_object_stats stats;
  int far = farside_get_object_stats(&stats) == 0;
  fprintf(stderr, "far=%d objects=%" PRIu64 " taken=%" PRIu64 " moved=%" PRIu64 " freed=%" PRIu64 "\n", far,
          stats.objects, stats.taken, stats.moved, stats.segments_freed);
}
