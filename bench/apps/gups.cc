// Random updates with a working set that shifts: RandomAccess of the HPC Challenge, with Zipf's law over pages, in one
// part of the data for the first half of the operations and in the other part for the second (MAGE 6.2). An operation
// is one update, an exclusive or of one word, so the result does not depend on the order of threads. One hinted line.
#include <atomic>
#include <utility>

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

class Table : public App {
 public:
  explicit Table(const Arguments& a)
      : a_(a),
        pages_(a.size / 4096),
        operations_(a.operations ? a.operations : a.size / 32),
        first_(0, static_cast<uint64_t>(static_cast<double>(pages_) * kFirstShare)),
        second_(first_.pages, pages_ - first_.pages),
        words_(make_array<uint64_t>(pages_ * kWordsInPage)) {
    in_parallel(a.threads, pages_ * kWordsInPage, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) words_[i] = initial(i);
    });
  }

  uint64_t run() {
    TimeLine line(a_.threads);
    update(first_, 0, operations_ / 2, line);
    members_ = member("shift_s", line.seconds());
    update(second_, operations_ / 2, operations_, line);
    members_ += line.text();
    return operations_;
  }

  // The same updates twice undo each other.
  const char* wrong() {
    checksum_ = sum();
    if (checksum_ == 0) return "an update is missing";
    std::string first = std::exchange(members_, "");
    if (a_.verify) run();
    members_ = first;
    return a_.verify && !is_initial() ? "the second run does not undo the first" : nullptr;
  }
  uint64_t checksum() const { return checksum_; }
  std::string members(double) const { return members_; }

 private:
  uint64_t initial(uint64_t i) const { return number_of(a_.seed, i); }
  uint64_t random_of(uint64_t operation) const { return mix(mix(a_.seed) + operation); }

  // The checksum of all words; 0: an update was lost or executed twice.
  uint64_t sum() const {
    std::atomic<uint64_t> change{0};
    uint64_t sum = sum_in_parallel(a_.threads, pages_ * kWordsInPage, [&](uint64_t begin, uint64_t end) {
      uint64_t mine = 0, changes = 0;
      for (uint64_t i = begin; i < end; i++) mine += mix(words_[i] ^ i), changes ^= words_[i] ^ initial(i);
      change ^= changes;
      return mine;
    });
    in_parallel(a_.threads, operations_, [&](unsigned, uint64_t begin, uint64_t end) {
      uint64_t changes = 0;
      for (uint64_t o = begin; o < end; o++) changes ^= mix(random_of(o));
      change ^= changes;
    });
    return change ? 0 : sum;
  }

  bool is_initial() const {
    for (uint64_t i = 0; i < pages_ * kWordsInPage; i++) {
      if (words_[i] != initial(i)) return false;
    }
    return true;
  }

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

  const Arguments a_;
  const uint64_t pages_, operations_;
  Part first_, second_;
  Array<uint64_t> words_;
  uint64_t checksum_ = 0;
  std::string members_;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<Table>("gups", parse(argc, argv));
}
