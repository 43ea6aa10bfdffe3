// Offload: the sum of a far column is computed by the memory server, so one number moves and not the column. Where no
// server executes functions, it is computed here.
//
//   farside run --offload --local 25% -- ./offload
#include <farside/offload.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

struct Column {
  const uint64_t* first;
  size_t count;
};

uint64_t sum(const Column& column) {
  uint64_t all = 0;
  for (size_t i = 0; i < column.count; i++) all += column.first[i];
  return all;
}

}  // namespace

int main() {
  std::vector<uint64_t> words(size_t{4} << 20);  // 32 MiB
  for (size_t i = 0; i < words.size(); i++) words[i] = i;

  auto all = farside::offload::call(sum, {words.data(), words.size()}, {{words.data(), words.size()}});
  if (!all) {
    fprintf(stderr, "offload: %s\n", all.error().text.c_str());
    return 1;
  }
  printf("sum of %zu words: %llu\n", words.size(), static_cast<unsigned long long>(*all));
  fprintf(stderr, "%d servers execute functions\n", farside_offload_servers());
}
