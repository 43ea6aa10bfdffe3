// Random updates with a working set that shifts: RandomAccess of the HPC Challenge, with Zipf's law over pages, in one
// part of the data for the first half of the operations and in the other part for the second (MAGE 6.2). An operation
// is one update, an exclusive or of one word, so the result does not depend on the order of threads. One hinted line.
#include <atomic>
#include <numeric>

#include "app.h"

namespace farside::apps {
namespace {

constexpr uint64_t kWordsInPage = 512;
constexpr double kSkew = 0.99, kFirstShare = 0.8;
constexpr uint64_t kReported = 64;  // operations between two reads of the clock

struct Part {
  Part(uint64_t begins, uint64_t count) : first_page(begins), pages(count), zipf(count, kSkew) {}
  uint64_t first_page, pages;
  Zipf zipf;
};

class Table {
 public:
  explicit Table(const Arguments& a)
      : a_(a),
        pages_(a.size / 4096),
        first_(0, static_cast<uint64_t>(static_cast<double>(pages_) * kFirstShare)),
        second_(first_.pages, pages_ - first_.pages),
        words_(make_array<uint64_t>(pages_ * kWordsInPage)) {
    in_parallel(a.threads, pages_ * kWordsInPage, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) words_[i] = initial(i);
    });
  }

  // Returns the time in seconds at which the working set shifted.
  double run(uint64_t operations, TimeLine& line) {
    update(first_, 0, operations / 2, line);
    double shift_s = line.seconds();
    update(second_, operations / 2, operations, line);
    return shift_s;
  }

  // The checksum of all words; 0: an update was lost or executed twice.
  uint64_t checksum(uint64_t operations) const {
    std::vector<uint64_t> sums(a_.threads), changes(a_.threads);
    in_parallel(a_.threads, pages_ * kWordsInPage, [&](unsigned t, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) {
        sums[t] += mix(words_[i] ^ i);
        changes[t] ^= words_[i] ^ initial(i);
      }
    });
    in_parallel(a_.threads, operations, [&](unsigned t, uint64_t begin, uint64_t end) {
      for (uint64_t o = begin; o < end; o++) changes[t] ^= mix(random_of(o));
    });
    uint64_t change = std::accumulate(changes.begin(), changes.end(), uint64_t{0}, std::bit_xor<>());
    return change ? 0 : std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  }

  // True if the words have their initial values, as after the same updates twice.
  bool is_initial() const {
    for (uint64_t i = 0; i < pages_ * kWordsInPage; i++) {
      if (words_[i] != initial(i)) return false;
    }
    return true;
  }

 private:
  uint64_t initial(uint64_t i) const { return mix(a_.seed * 0x10000000000 + i); }
  uint64_t random_of(uint64_t operation) const { return mix(mix(a_.seed) + operation); }

  void update(const Part& part, uint64_t first, uint64_t last, TimeLine& line) {
    in_parallel(a_.threads, last - first, [&](unsigned t, uint64_t begin, uint64_t end) {
      for (uint64_t o = begin; o < end; o += kReported) {
        uint64_t stop = std::min(o + kReported, end);
        for (uint64_t i = o; i < stop; i++) update_one(part, random_of(first + i));
        line.put(t, stop - o);
      }
    });
  }

  void update_one(const Part& part, uint64_t random) {
    uint64_t page = part.first_page + scatter(part.zipf.rank(unit(random)), part.pages);
    // unit() does not use these bits.
    uint64_t& word = words_[page * kWordsInPage + random % kWordsInPage];
    hint(&word, sizeof word, FARSIDE_WRITE);
    std::atomic_ref(word).fetch_xor(mix(random), std::memory_order_relaxed);
  }

  Arguments a_;
  uint64_t pages_;
  Part first_, second_;
  Array<uint64_t> words_;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  bool verify = false;
  Arguments a = parse(argc, argv, {{"--verify", &verify}});
  g_hints = a.hints;
  Stopwatch filling;
  Table table(a);
  double fill_s = filling.seconds();
  uint64_t operations = a.operations ? a.operations : a.size / 32;
  TimeLine line(a.threads);
  double shift_s = table.run(operations, line);
  double run_s = line.seconds();
  uint64_t checksum = table.checksum(operations);
  if (checksum == 0) return fprintf(stderr, "gups: an update is missing\n"), 1;
  if (verify) {
    TimeLine again(a.threads);
    table.run(operations, again);
    if (!table.is_initial()) return fprintf(stderr, "gups: the second run does not undo the first\n"), 1;
  }
  report("gups", a, fill_s, run_s, operations, checksum, member("shift_s", shift_s) + line.text());
}
