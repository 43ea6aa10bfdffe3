// A sequential scan with a checksum over all data, one part for each thread, as programs on data frames read their
// columns (MAGE 6.2). For each page a thread also computes for about --work-ns, so that the scan needs a known number
// of pages per second. An operation is one page. One hinted line.
#include "app.h"

namespace farside::apps {
namespace {

constexpr uint64_t kPageBytes = 4096, kWords = kPageBytes / 8;
constexpr uint64_t kNsOfMix = 5;  // about, of one step in work()

struct Page {
  uint64_t words[kWords];
};

class Scan : public App {
 public:
  Scan(const Arguments& a, uint64_t passes, uint64_t steps)
      : a_(a), passes_(passes), steps_(steps), count_(a.size / kPageBytes), pages_(make_array<Page>(count_)) {
    in_parallel(a.threads, count_, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t p = begin; p < end; p++) fill(pages_[p], p);
    });
  }

  uint64_t run() {
    for (uint64_t i = 0; i < passes_; i++) {
      uint64_t sum = sum_in_parallel(a_.threads, count_, [&](uint64_t begin, uint64_t end) {
        uint64_t mine = 0;
        for (uint64_t p = begin; p < end; p++) mine += work(checksum_of(hinted_page(p)) ^ p);
        return mine;
      });
      checksum_ = mix(checksum_ ^ sum);
    }
    return passes_ * count_;
  }

  const char* wrong() const { return a_.verify && expected() != checksum_ ? "the sum is wrong" : nullptr; }
  uint64_t checksum() const { return checksum_; }
  std::string members(double run_s) const {
    return member("bytes_per_s", static_cast<double>(passes_ * count_ * kPageBytes) / run_s);
  }

 private:
  // The result, computed from the seed alone.
  uint64_t expected() const {
    uint64_t sum = 0, result = 0;
    Page page;
    for (uint64_t p = 0; p < count_; p++) {
      fill(page, p);
      sum += work(checksum_of(page) ^ p);
    }
    for (uint64_t i = 0; i < passes_; i++) result = mix(result ^ sum);
    return result;
  }

  void fill(Page& page, uint64_t number) const {
    for (uint64_t i = 0; i < kWords; i++) page.words[i] = number_of(a_.seed, number * kWords + i);
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

  const Arguments a_;
  const uint64_t passes_, steps_, count_;
  Array<Page> pages_;
  uint64_t checksum_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  uint64_t passes = 3, work_ns = 1500;
  Arguments a = parse(argc, argv, {{"--passes", &passes}, {"--work-ns", &work_ns}});
  return run_app<Scan>("checksum_scan", a, passes, work_ns / kNsOfMix);
}
