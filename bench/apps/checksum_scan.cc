// A sequential scan with a checksum over all data, one part for each thread, as programs on data frames read their
// columns (MAGE 6.2). For each page a thread also computes for about --work-ns, so that the scan needs a known number
// of pages per second. An operation is one page. One hinted line.
#include <numeric>

#include "app.h"

namespace farside::apps {
namespace {

constexpr uint64_t kPageBytes = 4096, kWords = kPageBytes / 8;
constexpr uint64_t kNsOfMix = 5;  // about, of one step in work()

struct Page {
  uint64_t words[kWords];
};

class Scan {
 public:
  Scan(const Arguments& a, uint64_t steps)
      : threads_(a.threads), steps_(steps), count_(a.size / kPageBytes), pages_(make_array<Page>(count_)) {
    in_parallel(threads_, count_, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t p = begin; p < end; p++) {
        for (uint64_t i = 0; i < kWords; i++) pages_[p].words[i] = word(a.seed, p, i);
      }
    });
  }

  void pass() {
    std::vector<uint64_t> sums(threads_);
    in_parallel(threads_, count_, [&](unsigned t, uint64_t begin, uint64_t end) {
      uint64_t sum = 0;
      for (uint64_t p = begin; p < end; p++) sum += work(checksum_of(hinted_page(p)) ^ p);
      sums[t] = sum;
    });
    checksum_ = mix(checksum_ ^ std::accumulate(sums.begin(), sums.end(), uint64_t{0}));
  }

  // Compares with the result that is computed from the seed alone.
  bool is_right(uint64_t seed, uint64_t passes) const {
    uint64_t sum = 0, expected = 0;
    Page page;
    for (uint64_t p = 0; p < count_; p++) {
      for (uint64_t i = 0; i < kWords; i++) page.words[i] = word(seed, p, i);
      sum += work(checksum_of(page) ^ p);
    }
    for (uint64_t i = 0; i < passes; i++) expected = mix(expected ^ sum);
    return expected == checksum_;
  }

  uint64_t pages() const { return count_; }
  uint64_t checksum() const { return checksum_; }

 private:
  static uint64_t word(uint64_t seed, uint64_t page, uint64_t i) {
    return mix(seed * 0x10000000000 + page * kWords + i);
  }

  const Page& hinted_page(uint64_t p) const {
    hint(&pages_[p], kPageBytes, FARSIDE_READ | FARSIDE_AHEAD(32));
    return pages_[p];
  }

  // Fletcher's checksum: the second sum makes the result depend on the order of words.
  static uint64_t checksum_of(const Page& page) {
    uint64_t sum = 0, sums = 0;
    for (uint64_t w : page.words) sums += sum += w;
    return sum ^ (sums << 1);
  }

  uint64_t work(uint64_t value) const {
    for (uint64_t i = 0; i < steps_; i++) value = mix(value);
    return value;
  }

  unsigned threads_;
  uint64_t steps_, count_;
  Array<Page> pages_;
  uint64_t checksum_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  uint64_t passes = 3, work_ns = 1500;
  bool verify = false;
  Arguments a = parse(argc, argv, {{"--passes", &passes}, {"--work-ns", &work_ns}, {"--verify", &verify}});
  g_hints = a.hints;
  Stopwatch filling;
  Scan scan(a, work_ns / kNsOfMix);
  double fill_s = filling.seconds();
  uint64_t operations = passes * scan.pages();
  Stopwatch running;
  for (uint64_t i = 0; i < passes; i++) scan.pass();
  double run_s = running.seconds();
  if (verify && !scan.is_right(a.seed, passes)) return fprintf(stderr, "checksum_scan: the sum is wrong\n"), 1;
  report("checksum_scan", a, fill_s, run_s, operations, scan.checksum(),
         member("bytes_per_s", static_cast<double>(operations * 4096) / run_s));
}
