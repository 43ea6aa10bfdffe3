// A cache whose dropped entries are written to a file by the eviction handler, from far memory. Each value is found in
// one of the two, also in a child of a fork. Prints the number of values that were wrong.
#include <farside/farside.h>
#include <sys/wait.h>
#include <unistd.h>
#include <farside/containers/cache.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr uint64_t kKeys = 400000;

struct Value {
  uint64_t words[8];
};

Value value_of(uint64_t x) {
  Value v;
  for (uint64_t i = 0; i < 8; i++) v.words[i] = x * 1000003 + i;
  return v;
}

std::atomic<uint64_t> dropped{0};
int file = -1;

void write_back(const uint64_t& key, const Value& value) {
  auto* copy = new Value(value);  // in far memory
  if (pwrite(file, copy, sizeof *copy, static_cast<off_t>(key * sizeof *copy)) != sizeof *copy) abort();
  delete copy;
  dropped++;
}

farside::cache<uint64_t, Value> values({256 << 20, nullptr, 0}, write_back);

bool is_right(uint64_t key) {
  Value expected = value_of(key), stored = {};
  std::optional<Value> cached = values.load(key);
  if (!cached && pread(file, &stored, sizeof stored, static_cast<off_t>(key * sizeof stored)) != sizeof stored)
    return false;
  return memcmp(cached ? &*cached : &stored, &expected, sizeof expected) == 0;
}

uint64_t count_wrong() {
  uint64_t wrong = 0;
  for (uint64_t key = 0; key < kKeys; key++) wrong += !is_right(key);
  return wrong;
}

}  // namespace

int main() {
  char path[] = "dropped.XXXXXX";
  file = mkstemp(path);
  if (file < 0 || unlink(path) != 0) return 1;
  for (uint64_t key = 0; key < kKeys; key++) values.store(key, value_of(key));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    printf("child: %lu wrong\n", count_wrong());
    fflush(stdout);
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  printf("parent: %lu wrong\n", count_wrong());
  farside_stats stats;
  fprintf(stderr, "far=%d dropped=%lu\n", farside_get_stats(&stats) == 0, dropped.load());
}
