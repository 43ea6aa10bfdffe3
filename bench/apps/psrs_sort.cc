// Parallel sort by regular sampling (PSRS): each thread sorts a part, samples of all parts give pivots, and each thread
// merges the runs of all parts between two pivots. An operation is one key. Five hinted lines.
#include "app.h"

namespace farside::apps {
namespace {

using Key = uint64_t;
constexpr size_t kSmall = 512;  // keys: a page

// Hoare's partition; the median of three as pivot.
Key* partition(Key* begin, Key* end) {
  Key a = *begin, b = begin[(end - begin) / 2], c = end[-1];
  Key pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
  Key *left = begin, *right = end - 1;
  for (;; left++, right--) {
    for (hint(left, 8, FARSIDE_WRITE | FARSIDE_SEQ | FARSIDE_AHEAD(16)); *left < pivot; left++) {
      hint(left + 1, 8, FARSIDE_WRITE | FARSIDE_SEQ | FARSIDE_AHEAD(16));
    }
    for (; *right > pivot; right--) {
      // FARSIDE_SEQ looks the page up at its begin; a backward scan enters it at its end.
      if (reinterpret_cast<uintptr_t>(right) % 4096 == 0) hint(right - 1, 8, FARSIDE_WRITE | FARSIDE_BEHIND(16));
    }
    if (left >= right) return right + 1;
    std::swap(*left, *right);
  }
}

void sort_part(Key* begin, Key* end) {
  while (static_cast<size_t>(end - begin) > kSmall) {
    Key* middle = partition(begin, end);
    if (middle - begin < end - middle) {
      sort_part(begin, middle);
      begin = middle;
    } else {
      sort_part(middle, end);
      end = middle;
    }
  }
  std::sort(begin, end);
}

struct Run {
  const Key *next, *end;
};

// A tournament tree would save comparisons; with few threads a scan over the first keys is as fast.
void merge(std::vector<Run> runs, Key* out) {
  std::erase_if(runs, [](const Run& p) { return p.next == p.end; });
  while (!runs.empty()) {
    auto least =
        std::min_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return *a.next < *b.next; });
    hint(out, 8, FARSIDE_WRITE | FARSIDE_SEQ | FARSIDE_AHEAD(32));
    *out++ = *least->next++;
    if (least->next == least->end) runs.erase(least);
    else hint(least->next, 8, FARSIDE_READ | FARSIDE_SEQ | FARSIDE_AHEAD(16));
  }
}

class Sort : public App {
 public:
  Sort(const Arguments& a)
      : threads_(a.threads),
        count_(a.size / 2 / sizeof(Key)),
        keys_(make_array<Key>(count_)),
        sorted_(make_array<Key>(count_)) {
    in_parallel(threads_, count_, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t i = begin; i < end; i++) keys_[i] = number_of(a.seed, i);
    });
  }

  uint64_t run() {
    in_parallel(threads_, count_,
                [&](unsigned, uint64_t begin, uint64_t end) { sort_part(&keys_[begin], &keys_[end]); });
    std::vector<Key> pivots = choose_pivots();
    std::vector<std::vector<Run>> runs(threads_);
    std::vector<uint64_t> starts(threads_ + 1);
    for (unsigned t = 0; t < threads_; t++) {
      runs[t] = runs_between(t == 0 ? nullptr : &pivots[t - 1], t + 1 == threads_ ? nullptr : &pivots[t]);
      starts[t + 1] = starts[t];
      for (const Run& p : runs[t]) starts[t + 1] += static_cast<uint64_t>(p.end - p.next);
    }
    in_parallel(threads_, threads_, [&](unsigned t, uint64_t, uint64_t) { merge(runs[t], &sorted_[starts[t]]); });
    return count_;
  }

  // Of all keys in order; 0: the order is wrong.
  uint64_t checksum() const {
    std::atomic<bool> wrong{false};
    uint64_t sum = sum_in_parallel(threads_, count_, [&](uint64_t begin, uint64_t end) {
      uint64_t mine = 0;
      for (uint64_t i = begin; i < end; i++) {
        mine += mix(sorted_[i] ^ i);
        if (i > 0 && sorted_[i - 1] > sorted_[i]) wrong = true;
      }
      return mine;
    });
    return wrong ? 0 : sum;
  }
  const char* wrong() const { return checksum() == 0 ? "the result is not sorted" : nullptr; }

 private:
  const Key* part(unsigned t) const { return &keys_[count_ * t / threads_]; }

  std::vector<Key> choose_pivots() const {
    std::vector<Key> samples, pivots;
    for (unsigned t = 0; t < threads_; t++) {
      auto keys = static_cast<uint64_t>(part(t + 1) - part(t));
      for (unsigned s = 0; s < threads_; s++) samples.push_back(part(t)[keys * s / threads_]);
    }
    std::sort(samples.begin(), samples.end());
    for (unsigned t = 1; t < threads_; t++) pivots.push_back(samples[t * threads_ + threads_ / 2 - (threads_ > 1)]);
    return pivots;
  }

  std::vector<Run> runs_between(const Key* low, const Key* high) const {
    std::vector<Run> runs;
    for (unsigned t = 0; t < threads_; t++) {
      const Key *begin = part(t), *end = part(t + 1);
      runs.push_back(
          {low ? std::lower_bound(begin, end, *low) : begin, high ? std::lower_bound(begin, end, *high) : end});
    }
    return runs;
  }

  unsigned threads_;
  uint64_t count_;
  Array<Key> keys_, sorted_;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<Sort>("psrs_sort", parse(argc, argv));
}
