// What the applications share: options, random numbers, uninitialized arrays, time measurement, and the line of JSON
// that `farside bench all` reads. Everything that an application computes follows from --size and --seed; its checksum
// must be the same with and without hints, near and far, with any number of threads.
#pragma once
#include <farside/farside.h>
#include <farside/object.h>

#include <algorithm>
#include <atomic>
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
#include <variant>
#include <vector>

namespace farside::apps {

struct Arguments {
  uint64_t size = uint64_t{256} << 20;  // bytes of data, all arrays together
  uint64_t seed = 1;
  unsigned threads = 2;
  unsigned fibers = 16;     // of all threads together, in applications on fibers
  uint64_t operations = 0;  // 0: the application's default for the size
  bool verify = false;      // check the result at more cost
};

// An option. The type of the variable determines which values it takes.
struct Option {
  std::string_view name;
  std::variant<uint64_t*, bool*, std::string*> value;
};

[[noreturn]] inline void usage(const char* program, const char* complaint, const std::vector<Option>& options = {}) {
  constexpr const char* kValues[] = {"N|K|M|G", "on|off", "TEXT"};
  fprintf(stderr, "%s: %s\n", program, complaint);
  if (!options.empty()) fprintf(stderr, "usage: %s", program);
  for (const Option& o : options) {
    fprintf(stderr, " [%.*s %s]", static_cast<int>(o.name.size()), o.name.data(), kValues[o.value.index()]);
  }
  if (!options.empty()) fputc('\n', stderr);
  exit(2);
}

inline bool parse_value(const char* text, uint64_t& n) {
  char* end;
  n = strtoull(text, &end, 10);
  if (end == text) return false;
  if (*end == 'K' || *end == 'M' || *end == 'G') n <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 30, end++;
  return *end == 0;
}
inline bool parse_value(const char* text, bool& is_on) {
  is_on = !strcmp(text, "on");
  return is_on || !strcmp(text, "off");
}
inline bool parse_value(const char* text, const Option& option) {
  if (auto* number = std::get_if<uint64_t*>(&option.value)) return parse_value(text, **number);
  if (auto* is_on = std::get_if<bool*>(&option.value)) return parse_value(text, **is_on);
  **std::get_if<std::string*>(&option.value) = text;
  return true;
}

// Hints are enabled at run time, so that the same program is compared with and without them.
inline bool g_hints = false;
inline void hint(const void* address, size_t bytes, unsigned options) {
  if (g_hints) farside_hint(address, bytes, options);
}

// `more`: options of this application alone.
inline Arguments parse(int argc, char** argv, const std::vector<Option>& more = {}) {
  Arguments a;
  uint64_t threads = a.threads, fibers = a.fibers;
  std::vector<Option> options = {{"--size", &a.size},
                                 {"--seed", &a.seed},
                                 {"--threads", &threads},
                                 {"--fibers", &fibers},
                                 {"--operations", &a.operations},
                                 {"--hints", &g_hints},
                                 {"--verify", &a.verify}};
  options.insert(options.end(), more.begin(), more.end());
  for (int i = 1; i < argc; i += 2) {
    auto option = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == argv[i]; });
    if (option == options.end()) usage(argv[0], argv[i], options);
    if (i + 1 == argc) usage(argv[0], "an option without a value", options);
    if (!parse_value(argv[i + 1], *option)) usage(argv[0], argv[i + 1], options);
  }
  if (a.size < (1u << 20) || threads == 0 || threads > 64)
    usage(argv[0], "at least 1M of data, and 1 to 64 threads", options);
  if (fibers == 0 || fibers > 4096) usage(argv[0], "1 to 4096 fibers", options);
  a.threads = static_cast<unsigned>(threads);
  a.fibers = static_cast<unsigned>(fibers);
  return a;
}

// splitmix64: the n-th number of a seed can be computed without the others, so threads can fill arrays in any order.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
inline uint64_t number_of(uint64_t seed, uint64_t n) { return mix(seed * 0x10000000000 + n); }
inline double unit(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

// FNV-1a.
inline uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix(hash);
}

// Ranks 0 .. n - 1 by Zipf's law with a skew below 1 (Gray et al., "Quickly generating billion-record databases").
class Zipf {
 public:
  Zipf(uint64_t n, double skew) : n_(n), skew_(skew) {
    uint64_t exactly = std::min<uint64_t>(n, 1 << 20);
    for (uint64_t i = 1; i <= exactly; i++) zeta_ += std::pow(static_cast<double>(i), -skew);
    zeta_ += integral(static_cast<double>(n)) - integral(static_cast<double>(exactly));
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
  // The integral of x^-skew, and half of the last term: the sum up to x except for a constant (Euler-Maclaurin
  // formula).
  double integral(double x) const { return std::pow(x, 1 - skew_) / (1 - skew_) + std::pow(x, -skew_) / 2; }

  uint64_t n_;
  double skew_, zeta_ = 0, eta_;
};

// Distributes ranks over [0, n), so that popular ones are not neighbours. One-to-one: n is below 2^31, and the factor
// is a larger prime.
inline uint64_t scatter(uint64_t rank, uint64_t n) { return rank * 2654435761 % n; }

// An array whose memory has not been accessed yet.
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

// The sum of what work(begin, end) returns for each part.
template <typename Work>
uint64_t sum_in_parallel(unsigned threads, uint64_t count, Work work) {
  std::atomic<uint64_t> sum{0};
  in_parallel(threads, count, [&](unsigned, uint64_t begin, uint64_t end) { sum += work(begin, end); });
  return sum;
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Times of numbered operations. Several threads may add different operations at the same time.
class Latencies {
 public:
  explicit Latencies(uint64_t operations) : us_(operations) {}
  uint64_t count() const { return us_.size(); }
  void put(uint64_t operation, double seconds) { us_[operation] = static_cast<float>(seconds * 1e6); }
  // The quantiles, as members for report().
  std::string text() {
    std::sort(us_.begin(), us_.end());
    char members[100];
    snprintf(members, sizeof members, ",\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f", at(0.5), at(0.99),
             at(0.999));
    return members;
  }

 private:
  double at(double share) const { return us_[static_cast<size_t>(static_cast<double>(us_.size() - 1) * share)]; }
  std::vector<float> us_;
};

// Operations in each tenth of a second. Each thread adds its operations every few of them; each call reads the clock.
class TimeLine {
 public:
  explicit TimeLine(unsigned threads) : done_(threads) {}
  void put(unsigned thread, uint64_t operations) {
    auto tenth = static_cast<size_t>(seconds() * 10);
    std::vector<uint64_t>& mine = done_[thread];
    if (mine.size() <= tenth) mine.resize(tenth + 1);
    mine[tenth] += operations;
  }
  double seconds() const { return watch_.seconds(); }
  // A member for report(); the last tenth of a second is incomplete.
  std::string text() const {
    std::vector<uint64_t> sums;
    for (const auto& mine : done_) {
      if (sums.size() < mine.size()) sums.resize(mine.size());
      for (size_t i = 0; i < mine.size(); i++) sums[i] += mine[i];
    }
    std::string numbers;
    for (uint64_t sum : sums) numbers += (numbers.empty() ? "" : ",") + std::to_string(sum);
    return ",\"timeline\":[" + numbers + "]";
  }

 private:
  Stopwatch watch_;
  std::vector<std::vector<uint64_t>> done_;
};

// A member for report().
inline std::string member(const char* name, double value) {
  char text[100];
  snprintf(text, sizeof text, ",\"%s\":%.3f", name, value);
  return text;
}

// What was fetched from far memory since this was created; all zero where nothing is far. A miss is a page or an object
// that was waited for.
class Fetched {
 public:
  std::string text() const {
    Now now;
    return count("misses", now.misses() - begin_.misses()) +
           count("objects_taken", now.objects.taken - begin_.objects.taken) +
           count("fetched_bytes", now.costs.bytes_fetched - begin_.costs.bytes_fetched);
  }

 private:
  struct Now {
    Now() {
      farside_get_costs(&costs);
      farside_get_stats(&stats);
      farside_get_object_stats(&objects);
    }
    uint64_t misses() const { return costs.fetches + stats.hints_fetched + objects.taken; }
    farside_costs costs;
    farside_stats stats;
    farside_object_stats objects;
  };
  static std::string count(const char* name, uint64_t n) { return ",\"" + (name + ("\":" + std::to_string(n))); }
  Now begin_;
};

// `more`: further members, as in ",\"p99_us\":12".
inline void report(const char* app, const Arguments& a, double fill_s, double run_s, uint64_t operations,
                   uint64_t checksum, const std::string& more = "") {
  printf(
      "{\"app\":\"%s\",\"size\":%lu,\"seed\":%lu,\"threads\":%u,\"hints\":%s,\"fill_s\":%.3f,\"run_s\":%.3f,"
      "\"operations\":%lu,\"ops_per_s\":%.1f,\"checksum\":\"%016lx\"%s}\n",
      app, a.size, a.seed, a.threads, g_hints ? "true" : "false", fill_s, run_s, operations,
      static_cast<double>(operations) / run_s, checksum, more.c_str());
}

// An application. Its constructor fills its data; run() returns the number of operations, checksum() that of the
// result.
struct App {
  const char* wrong() const { return nullptr; }               // what is wrong with the result
  std::string members(double /*run_s*/) const { return ""; }  // further ones for report()
};

// Fills, runs and checks an AppOfKind(a, more...), and reports. The status of the program.
template <typename AppOfKind, typename... More>
int run_app(const char* name, const Arguments& a, More... more) {
  Stopwatch filling;
  AppOfKind app(a, more...);
  double fill_s = filling.seconds();
  Fetched fetched;
  Stopwatch running;
  uint64_t operations = app.run();
  double run_s = running.seconds();
  std::string fetched_text = fetched.text();
  if (const char* wrong = app.wrong()) return fprintf(stderr, "%s: %s\n", name, wrong), 1;
  report(name, a, fill_s, run_s, operations, app.checksum(), app.members(run_s) + fetched_text);
  return 0;
}

}  // namespace farside::apps
