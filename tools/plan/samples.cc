#include "tools/plan/samples.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <unordered_map>

#include "base/bits.h"

namespace farside::plan {
namespace {

struct Raw {
  uint64_t ticks;
  uint32_t value;
  SampleKind kind;
};

bool is_use(SampleKind kind) { return kind == SampleKind::kFetched || kind == SampleKind::kTouched; }

// Events in the order of their times. What was begun and not finished is left out.
std::vector<Raw> sorted_events(const std::string& bytes, uint64_t begun) {
  std::vector<Raw> events;
  uint64_t room = (bytes.size() - kSampleEventsAt) / sizeof(Raw);
  for (uint64_t i = 0; i < std::min(begun, room); i++) {
    Raw raw;
    memcpy(&raw, bytes.data() + kSampleEventsAt + i * sizeof raw, sizeof raw);
    if (raw.kind != SampleKind::kNone && raw.kind <= SampleKind::kRound) events.push_back(raw);
  }
  std::ranges::stable_sort(events, {}, &Raw::ticks);
  return events;
}

// Converts times of a process to useful time: that of its rounds, less what its threads lost in faults.
class UsefulTime {
 public:
  UsefulTime(const std::vector<Raw>& events, double ticks_per_us) : ticks_per_us_(ticks_per_us) {
    for (const Raw& event : events) look_at(event);
    if (spans_.empty()) return;
    spans_.back().end = events.back().ticks;
    estimate_last();
  }

  // Of all threads, per fetch.
  double fault_us() const { return fault_us_; }
  double processors() const { return processors_; }
  size_t rounds() const { return spans_.size(); }

  // Times rise from call to call. fetches: those of the round until then.
  double of(size_t round, uint64_t ticks, uint64_t fetches) const {
    const Span& span = spans_[round];
    double lost =
        span.fetches == 0 ? 0 : span.lost_us * static_cast<double>(fetches) / static_cast<double>(span.fetches);
    double us = static_cast<double>(ticks - span.begin) / ticks_per_us_ - lost / processors_;
    return span.useful_us + std::max(0.0, us);
  }
  double end() const { return of(spans_.size() - 1, spans_.back().end, spans_.back().fetches); }
  double seconds() const { return static_cast<double>(spans_.back().end - spans_[0].begin) / ticks_per_us_ / 1e6; }

 private:
  struct Span {  // of a round
    uint64_t begin, end = 0, fetches = 0;
    double lost_us = 0, useful_us = 0;
  };

  void look_at(const Raw& event) {
    if (event.kind == SampleKind::kLostUs) lost_ = event.value;
    if (event.kind == SampleKind::kRanUs) {
      ran_us_ += since(ran_, event.value);
      ran_ = event.value;
    }
    if (event.kind == SampleKind::kFetched && !spans_.empty()) spans_.back().fetches++;
    if (event.kind == SampleKind::kRound) begin_round(event.ticks);
  }

  void begin_round(uint64_t ticks) {
    if (spans_.empty()) {
      ran_us_ = 0;
    } else {
      spans_.back().end = ticks;
      spans_.back().lost_us = since(before_, lost_);
    }
    before_ = lost_;
    spans_.push_back({.begin = ticks});
  }

  // The last round's losses were not recorded: its fetches cost as much as those before.
  void estimate_last() {
    double lost = 0, elapsed = us(spans_.front().begin, spans_.back().begin);
    uint64_t fetches = 0;
    for (size_t i = 0; i + 1 < spans_.size(); i++) lost += spans_[i].lost_us, fetches += spans_[i].fetches;
    if (elapsed > 0) processors_ = std::max(1.0, ran_us_ / elapsed);
    constexpr double kTypicalUs = 8;
    fault_us_ = fetches == 0 ? kTypicalUs : lost / static_cast<double>(fetches);
    spans_.back().lost_us = fault_us_ * static_cast<double>(spans_.back().fetches);
    double useful = 0;
    for (Span& span : spans_) {
      span.useful_us = useful;
      useful += std::max(0.0, us(span.begin, span.end) - span.lost_us / processors_);
    }
  }

  // Processor times are read one after the other, so that of the program may seem to have fallen.
  static double since(uint32_t before, uint32_t now) { return std::max(0, static_cast<int32_t>(now - before)); }
  double us(uint64_t begin, uint64_t end) const { return static_cast<double>(end - begin) / ticks_per_us_; }

  double ticks_per_us_, fault_us_ = 0, processors_ = 1;
  double ran_us_ = 0;  // since the first round
  uint32_t ran_ = 0, lost_ = 0, before_ = 0;
  std::vector<Span> spans_;
};

// A fetch soon after one of its neighbours is that of a stream.
class Neighbours {
 public:
  bool follows(uint32_t page) {
    bool found = std::ranges::any_of(last_, [&](uint32_t p) { return p + 1 == page || p == page + 1; });
    last_.push_back(page);
    if (last_.size() > kRemembered) last_.pop_front();
    return found;
  }

 private:
  static constexpr size_t kRemembered = 8;
  std::deque<uint32_t> last_;
};

struct Use {
  double us;
  SampleKind kind;
  bool in_stream;
};

// A use of a sampled page, `us` after the page was far.
struct Return {
  double us;
  bool is_fetch, in_stream;
};

// Misses of one cycle, with so much of the sample near.
struct Misses {
  double all = 0, in_streams = 0;
};

// dW/dT where W is `near` sampled pages, times the length of the cycle. The rate is that of some hundred returns before
// and after: fewer say little, and more hide the end of a loop, after which hardly a page returns.
Misses misses_of(const std::vector<Return>& returns, double near, double length) {
  constexpr double kMinReach = 8, kMaxReach = 128, kReachShare = 8;
  auto size = static_cast<double>(returns.size());
  if (near >= size) return {};
  double reach = std::min(std::clamp(near / kReachShare, kMinReach, kMaxReach), size - near);
  auto first = static_cast<size_t>(std::max(0.0, near - reach)), last = static_cast<size_t>(std::ceil(near + reach));
  double from = first == 0 ? 0 : returns[first - 1].us, to = returns[last - 1].us;
  Misses found;
  for (size_t i = first; i < last; i++) {
    found.all += returns[i].is_fetch;
    found.in_streams += returns[i].is_fetch && returns[i].in_stream;
  }
  double per_us = length / std::max(1.0, to - from);
  return {found.all * per_us, found.in_streams * per_us};
}

struct Mean {
  double sum = 0, count = 0;
  void add(double value) { sum += value, count++; }
  double mean() const { return count > 0 ? sum / count : 0; }
};

// The misses of all cycles with one size.
struct Total {
  Misses misses;
  double squares = 0, last = 0;  // of the differences between successive cycles
  unsigned cycles = 0;

  void add(const Misses& cycle) {
    misses.all += cycle.all;
    misses.in_streams += cycle.in_streams;
    if (cycles++ > 0) squares += (cycle.all - last) * (cycle.all - last);
    last = cycle.all;
  }
  // Successive cycles differ by chance, and little by what the program does. Of one alone little is known.
  double error() const {
    constexpr double kUnknown = 0.25;
    return cycles > 1 ? std::sqrt(squares / 2) : kUnknown * misses.all;
  }
};

class Sum {
 public:
  Sum(const Samples& samples, const std::vector<double>& sizes)
      : samples_(samples), sizes_(sizes), totals_(sizes.size()), end_(samples.useful_us) {}

  // Backwards, so that the next use of each page is known.
  std::vector<Fetches> run() {
    size_t end = samples_.events.size();
    for (size_t round = samples_.rounds.size(); round-- > 0;) {
      const Samples::Round& now = samples_.rounds[round];
      begin_ = {};
      for (; end > now.first; end--) look_at(samples_.events[end - 1]);
      add_touches(now.slice);
      slices_++;
      if (now.slice == 0 || round == 0) add_cycle(now.us);
    }
    return result();
  }

 private:
  void look_at(const Samples::Event& event) {
    std::unordered_map<uint32_t, Use>& next = next_[sample_slice(event.page)];
    if (is_use(event.kind)) {
      next[event.page] = {event.us, event.kind, event.in_stream};
      return;
    }
    if (event.kind == SampleKind::kFarDirty) dirty_++;
    if (event.kind == SampleKind::kFarClean) clean_++;
    begin_.add(event.us);
    auto use = next.find(event.page);
    if (use == next.end() || use->second.kind != SampleKind::kFetched) return;  // never used again, or freed
    returns_.push_back({use->second.us - event.us, true, use->second.in_stream});
  }

  // The rounds of all slices together: the number of pages in one slice varies.
  void add_cycle(double begin) {
    double rate = samples_.rate() * slices_ / kSampleSlices;
    std::ranges::sort(returns_, {}, &Return::us);
    for (size_t i = 0; i < sizes_.size(); i++) {
      Misses misses = misses_of(returns_, sizes_[i] * rate, end_ - begin);
      totals_[i].add({misses.all / rate, misses.in_streams / rate});
    }
    end_ = begin;
    slices_ = 0;
    returns_.clear();
  }

  // Pages that are touched for the first time take near memory from the others.
  void add_touches(uint32_t slice) {
    for (const auto& [page, use] : next_[slice]) {
      if (use.kind == SampleKind::kTouched && use.us > begin_.mean())
        returns_.push_back({use.us - begin_.mean(), false, false});
    }
  }

  std::vector<Fetches> result() const {
    double evicted = static_cast<double>(dirty_ + clean_),
           dirty = evicted > 0 ? static_cast<double>(dirty_) / evicted : 0;
    std::vector<Fetches> made;
    for (const Total& total : totals_)
      made.push_back({{total.misses.all, total.error()}, total.misses.in_streams, dirty});
    return made;
  }

  const Samples& samples_;
  const std::vector<double>& sizes_;
  std::vector<Total> totals_;
  std::unordered_map<uint32_t, Use> next_[kSampleSlices];
  Mean begin_;  // when the pages of the round were far
  // Of the cycle:
  std::vector<Return> returns_;
  unsigned slices_ = 0;
  double end_;
  uint64_t dirty_ = 0, clean_ = 0;
};

// More near memory fetches no more. Where it seems to, a burst of uses was taken for the rate of a whole cycle.
void take_least(std::vector<Fetches>* fetches) {
  for (size_t i = 1; i < fetches->size(); i++) {
    if ((*fetches)[i].all.value > (*fetches)[i - 1].all.value) (*fetches)[i] = (*fetches)[i - 1];
  }
}

// The lower convex hull of the misses over the sizes, from all that is used (no size) on.
void take_hull(const std::vector<double>& sizes, std::vector<Fetches>* fetches) {
  std::vector<size_t> hull;
  auto above = [&](size_t a, size_t b, size_t c) {  // b lies above the line from a to c
    double slope = ((*fetches)[c].all.value - (*fetches)[a].all.value) / (sizes[c] - sizes[a]);
    return (*fetches)[b].all.value > (*fetches)[a].all.value + slope * (sizes[b] - sizes[a]);
  };
  for (size_t i = 0; i < sizes.size(); i++) {
    while (hull.size() > 1 && above(hull[hull.size() - 2], hull.back(), i)) hull.pop_back();
    hull.push_back(i);
  }
  for (size_t h = 0; h + 1 < hull.size(); h++) {
    const Fetches left = (*fetches)[hull[h]], right = (*fetches)[hull[h + 1]];
    for (size_t i = hull[h] + 1; i < hull[h + 1]; i++) {
      double part = (sizes[i] - sizes[hull[h]]) / (sizes[hull[h + 1]] - sizes[hull[h]]);
      Fetches& f = (*fetches)[i];
      double scale = f.all.value > 0 ? std::lerp(left.all.value, right.all.value, part) / f.all.value : 0;
      f.all.value *= scale;
      f.all.error *= scale;
      f.in_streams *= scale;
    }
  }
}

}  // namespace

Result<Samples> read_samples(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < kSampleEventsAt) return Status::error(EINVAL, "{} has no samples", path);
  const auto* header = reinterpret_cast<const SampleHeader*>(bytes.data());
  if (header->magic != SampleHeader::kMagic || header->ticks_per_us <= 0)
    return Status::error(EINVAL, "{} has no samples of this version of Farside", path);
  Samples samples;
  samples.pid = header->pid;
  samples.is_cut_off = header->is_full != 0;
  std::vector<Raw> raw = sorted_events(bytes, header->events.load());
  for (const Raw& event : raw) {
    if (event.kind == SampleKind::kThreshold) samples.threshold = std::min(samples.threshold, event.value);
    if (event.kind == SampleKind::kPopulated) samples.heap_pages = std::max<uint64_t>(samples.heap_pages, event.value);
  }
  UsefulTime time(raw, header->ticks_per_us);
  if (time.rounds() == 0) return samples;
  uint64_t fetches = 0;
  Neighbours neighbours;
  for (const Raw& event : raw) {
    if (event.kind == SampleKind::kRound) {
      fetches = 0;
      samples.rounds.push_back({time.of(samples.rounds.size(), event.ticks, 0), samples.events.size(), event.value});
    }
    bool is_page = event.kind < SampleKind::kThreshold;
    if (samples.rounds.empty() || !is_page) continue;
    fetches += event.kind == SampleKind::kFetched;
    if (!is_sampled(event.value, samples.threshold)) continue;
    double us = time.of(samples.rounds.size() - 1, event.ticks, fetches);
    bool in_stream = event.kind == SampleKind::kFetched && neighbours.follows(event.value);
    samples.events.push_back({us, event.value, event.kind, in_stream});
  }
  samples.seconds = time.seconds();
  samples.useful_us = time.end();
  samples.processors = time.processors();
  samples.fault_us = time.fault_us();
  return samples;
}

std::vector<Fetches> fetches_with(const Samples& samples, const std::vector<double>& sizes) {
  std::vector<Fetches> fetches = Sum(samples, sizes).run();
  take_least(&fetches);
  take_hull(sizes, &fetches);
  return fetches;
}

}  // namespace farside::plan
