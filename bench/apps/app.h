// What the applications share: their options, random numbers, memory without constructors, and the line of JSON that
// run.py reads. Everything an application computes follows from --size and --seed alone; its checksum must be the same
// with and without hints, near and far, with any number of threads.
#pragma once
#include <farside/farside.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace farside::apps {

struct Arguments {
  uint64_t size = uint64_t{256} << 20;  // bytes of data, all arrays together
  uint64_t seed = 1;
  unsigned threads = 2;
  uint64_t operations = 0;  // 0: as many as the application thinks right for the size
  bool hints = false;
};

[[noreturn]] inline void usage(const char* program, const char* complaint) {
  fprintf(stderr, "%s: %s\nusage: %s [--size BYTES|M|G] [--seed N] [--threads N] [--operations N] [--hints on|off]\n",
          program, complaint, program);
  exit(2);
}

inline uint64_t parse_number(const char* program, const char* text) {
  char* end;
  uint64_t n = strtoull(text, &end, 10);
  if (*end == 'K' || *end == 'M' || *end == 'G') n <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30, end++;
  if (end == text || *end != 0) usage(program, text);
  return n;
}

inline Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; i += 2) {
    std::string_view name = argv[i];
    if (i + 1 == argc) usage(argv[0], "an option without a value");
    const char* value = argv[i + 1];
    if (name == "--size") a.size = parse_number(argv[0], value);
    else if (name == "--seed") a.seed = parse_number(argv[0], value);
    else if (name == "--threads") a.threads = static_cast<unsigned>(parse_number(argv[0], value));
    else if (name == "--operations") a.operations = parse_number(argv[0], value);
    else if (name == "--hints" && (!strcmp(value, "on") || !strcmp(value, "off"))) a.hints = !strcmp(value, "on");
    else usage(argv[0], argv[i]);
  }
  if (a.size < (1u << 20) || a.threads == 0 || a.threads > 64)
    usage(argv[0], "at least 1M of data, and 1 to 64 threads");
  return a;
}

// One program is compared with and without hints, so they are switched at run time.
inline bool g_hints = false;
inline void hint(const void* address, size_t bytes, unsigned options) {
  if (g_hints) farside_hint(address, bytes, options);
}

// splitmix64: the n-th number of a seed can be had without the others, so threads fill arrays in any order.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
inline double unit(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

// Ranks 0 .. n - 1 by Zipf's law with a skew below 1 (Gray et al., "Quickly generating billion-record databases").
class Zipf {
 public:
  Zipf(uint64_t n, double skew) : n_(n), skew_(skew) {
    for (uint64_t i = 1; i <= n; i++) zeta_ += std::pow(static_cast<double>(i), -skew);
    double zeta2 = 1 + std::pow(2, -skew);
    eta_ = (1 - std::pow(2.0 / static_cast<double>(n), 1 - skew)) / (1 - zeta2 / zeta_);
  }
  uint64_t rank(double u) const {
    double uz = u * zeta_;
    if (uz < 1) return 0;
    if (uz < 1 + std::pow(0.5, skew_)) return 1;
    auto r = static_cast<uint64_t>(static_cast<double>(n_) * std::pow(eta_ * u - eta_ + 1, 1 / (1 - skew_)));
    return r < n_ ? r : n_ - 1;
  }

 private:
  uint64_t n_;
  double skew_, zeta_ = 0, eta_;
};

// An array that nobody has touched yet.
struct Free {
  void operator()(void* memory) const { free(memory); }
};
template <typename T>
using Array = std::unique_ptr<T[], Free>;
template <typename T>
Array<T> make_array(uint64_t count) {
  T* memory = static_cast<T*>(aligned_alloc(4096, (count * sizeof(T) + 4095) / 4096 * 4096));
  if (!memory) fprintf(stderr, "out of memory\n"), exit(1);
  return Array<T>(memory);
}

// Runs work(thread, begin, end) on equal parts of [0, count).
template <typename Work>
void in_parallel(unsigned threads, uint64_t count, Work work) {
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; t++) {
    running.emplace_back([=, &work] { work(t, count * t / threads, count * (t + 1) / threads); });
  }
  for (auto& r : running) r.join();
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Times of numbered operations, which threads may put in at once.
class Latencies {
 public:
  explicit Latencies(uint64_t operations) : us_(operations) {}
  void put(uint64_t operation, double seconds) { us_[operation] = static_cast<float>(seconds * 1e6); }
  // Members for report().
  std::string text() {
    std::sort(us_.begin(), us_.end());
    char members[100];
    snprintf(members, sizeof members, ",\"p50_us\":%.1f,\"p99_us\":%.1f", at(0.5), at(0.99));
    return members;
  }

 private:
  double at(double share) const { return us_[static_cast<size_t>(static_cast<double>(us_.size() - 1) * share)]; }
  std::vector<float> us_;
};

// `more`: further members, as in ",\"p99_us\":12".
inline void report(const char* app, const Arguments& a, double fill_s, double run_s, uint64_t operations,
                   uint64_t checksum, const std::string& more = "") {
  printf(
      "{\"app\":\"%s\",\"size\":%lu,\"seed\":%lu,\"threads\":%u,\"hints\":%s,\"fill_s\":%.3f,\"run_s\":%.3f,"
      "\"operations\":%lu,\"ops_per_s\":%.1f,\"checksum\":\"%016lx\"%s}\n",
      app, a.size, a.seed, a.threads, a.hints ? "true" : "false", fill_s, run_s, operations,
      static_cast<double>(operations) / run_s, checksum, more.c_str());
}

}  // namespace farside::apps
