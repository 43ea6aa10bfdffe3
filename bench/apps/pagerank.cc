// PageRank by pulling, on a Kronecker graph (R-MAT with a = 0.57, b = c = 0.19, as in GAP and Graph 500) in compressed
// rows, with OpenMP. The row of sources of each vertex is drawn independently: bits of a target are 0 with probability
// a + c, so the number of its edges follows a Poisson distribution with a known mean, and each source bit depends on
// the target's bit only. So rows are written in order, with any number of threads. Ranks are in fixed point, so their
// sums are exact. An operation is one edge. One hinted line: the stream of edges is evicted first (priority 3), and
// gathered ranks are kept.
#include <omp.h>

#include "app.h"

namespace farside::apps {
namespace {

constexpr double kA = 0.57, kC = 0.19;  // b = c, and d is the rest
constexpr uint64_t kMinDegree = 16;     // on average; the rest of the data becomes more edges
constexpr uint64_t kOne = uint64_t{1} << 62;
constexpr uint64_t kChunk = 1024;  // vertices that a thread takes at once

// The inverse of an odd number modulo 2^64.
constexpr uint64_t inverse(uint64_t odd) {
  uint64_t x = odd;
  for (int i = 0; i < 6; i++) x *= 2 - odd * x;  // each step doubles the number of correct bits
  return x;
}

// Renumbers vertices, so that those with many edges are not neighbours: an odd factor and a shift, both invertible.
class Labels {
 public:
  explicit Labels(unsigned scale) : mask_((uint64_t{1} << scale) - 1), shift_(scale / 2 + 1) {}
  uint64_t vertex(uint64_t label) const { return xor_shift((label * kFactor) & mask_) * kFactor & mask_; }
  uint64_t label(uint64_t vertex) const { return xor_shift((vertex * kInverse) & mask_) * kInverse & mask_; }

 private:
  static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15, kInverse = inverse(kFactor);
  uint64_t xor_shift(uint64_t x) const { return x ^ (x >> shift_); }  // its own inverse
  uint64_t mask_;
  unsigned shift_;
};

// A Poisson variable, by inversion; for a large mean, by its normal approximation.
uint64_t poisson(double mean, uint64_t random) {
  if (mean > 64) {
    double radius = std::sqrt(-2 * std::log(1 - unit(random)));
    double drawn = mean + std::sqrt(mean) * radius * std::cos(6.283185307179586 * unit(mix(random)));
    return drawn < 0 ? 0 : static_cast<uint64_t>(drawn + 0.5);
  }
  double u = unit(random), probability = std::exp(-mean), sum = probability;
  uint64_t n = 0;
  while (u > sum && n < 1000) {
    probability *= mean / static_cast<double>(++n);
    sum += probability;
  }
  return n;
}

// The edges to each vertex. The sources of v are sources[first[v]] to sources[first[v + 1] - 1].
struct Graph {
  explicit Graph(const Arguments& a)
      : seed(a.seed),
        scale(scale_of(a.size)),
        vertices(uint64_t{1} << scale),
        labels(scale),
        wanted((a.size - vertices * kVertexBytes) / sizeof(uint32_t)),
        first(make_array<uint64_t>(vertices + 1)),
        out(make_array<uint32_t>(vertices)) {
    first[0] = 0;
#pragma omp parallel for schedule(static)
    for (uint64_t v = 0; v < vertices; v++) out[v] = 0, first[v + 1] = degree_of(v);
    for (uint64_t v = 0; v < vertices; v++) first[v + 1] += first[v];
    sources = make_array<uint32_t>(edges());
#pragma omp parallel for schedule(dynamic, kChunk)
    for (uint64_t v = 0; v < vertices; v++) draw_row(v);
  }

  uint64_t edges() const { return first[vertices]; }

  static constexpr uint64_t kVertexBytes = 8 + 4 + 8 + 8;  // first, out, and two ranks
  static unsigned scale_of(uint64_t bytes) {
    unsigned s = 1;
    while ((uint64_t{2} << s) * (kVertexBytes + kMinDegree * sizeof(uint32_t)) <= bytes) s++;
    return s;
  }

  // The mean is that of R-MAT: all edges, and for each bit of the target the probability of that bit.
  uint64_t degree_of(uint64_t v) const {
    int ones = __builtin_popcountll(labels.vertex(v));
    double share = std::pow(kA + kC, static_cast<int>(scale) - ones) * std::pow(1 - kA - kC, ones);
    return poisson(static_cast<double>(wanted) * share, mix(mix(seed) + v));
  }

  void draw_row(uint64_t v) {
    uint64_t target = labels.vertex(v);
    for (uint64_t e = first[v]; e < first[v + 1]; e++) sources[e] = static_cast<uint32_t>(draw_source(target, e));
    std::sort(&sources[first[v]], &sources[first[v + 1]]);
    for (uint64_t e = first[v]; e < first[v + 1]; e++) __atomic_fetch_add(&out[sources[e]], 1, __ATOMIC_RELAXED);
  }

  // All bits at once. A source bit is 1 with probability c / (a + c) = 1/4 where the target's bit is 0, else d / (b +
  // d), nearly 1/4 * 53/64; and 53/64 is 0.110101 in binary: from its last digit on, or for a 1, and for a 0.
  uint64_t draw_source(uint64_t target, uint64_t edge) const {
    uint64_t random[4];
    for (uint64_t i = 0; i < 4; i++) random[i] = mix(number_of(seed, edge) + i);
    uint64_t low = random[0] & random[0] >> 32, keep = random[1];
    keep = ((keep & random[1] >> 32) | random[2]) & random[2] >> 32;
    keep |= random[3] | random[3] >> 32;
    return labels.label(low & (keep | ~target) & (vertices - 1));
  }

  uint64_t seed;
  unsigned scale;
  uint64_t vertices;
  Labels labels;
  uint64_t wanted;  // edges
  Array<uint64_t> first;
  Array<uint32_t> out;  // edges from each vertex
  Array<uint32_t> sources;
};

// The ranks, damped by 17/20. Every division rounds down, so ranks add up to kOne or slightly less.
class Ranks {
 public:
  explicit Ranks(const Graph& graph)
      : g_(graph), rank_(make_array<uint64_t>(g_.vertices)), share_(make_array<uint64_t>(g_.vertices)) {
#pragma omp parallel for schedule(static)
    for (uint64_t v = 0; v < g_.vertices; v++) rank_[v] = kOne / g_.vertices;
  }

  void iterate() {
    uint64_t dangling = 0;  // the ranks of vertices without edges to others, distributed over all vertices
#pragma omp parallel for schedule(static) reduction(+ : dangling)
    for (uint64_t v = 0; v < g_.vertices; v++) {
      share_[v] = g_.out[v] ? rank_[v] / g_.out[v] : 0;
      if (g_.out[v] == 0) dangling += rank_[v];
    }
    uint64_t base_rank = base(dangling);
#pragma omp parallel for schedule(dynamic, kChunk)
    for (uint64_t v = 0; v < g_.vertices; v++) rank_[v] = base_rank + gather(v) / 20 * 17;
  }

  // The same serially, by edges instead of rows, for the check.
  void iterate_simply() {
    std::vector<uint64_t> sums(g_.vertices);
    uint64_t dangling = 0;
    for (uint64_t v = 0; v < g_.vertices; v++) {
      for (uint64_t e = g_.first[v]; e < g_.first[v + 1]; e++) {
        uint64_t u = g_.sources[e];
        sums[v] += rank_[u] / g_.out[u];
      }
    }
    for (uint64_t v = 0; v < g_.vertices; v++) dangling += g_.out[v] ? 0 : rank_[v];
    for (uint64_t v = 0; v < g_.vertices; v++) rank_[v] = base(dangling) + sums[v] / 20 * 17;
  }

  // Rounding loses less than 1 for each edge and less than 40 for each vertex.
  bool add_up(uint64_t iterations) const {
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (uint64_t v = 0; v < g_.vertices; v++) sum += rank_[v];
    return sum <= kOne && kOne - sum <= iterations * (g_.edges() + 40 * g_.vertices);
  }

  uint64_t checksum() const {
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (uint64_t v = 0; v < g_.vertices; v++) sum += mix(rank_[v] ^ mix(v));
    return sum;
  }

 private:
  uint64_t base(uint64_t dangling) const { return (kOne / 20 * 3 + dangling / 20 * 17) / g_.vertices; }

  uint64_t gather(uint64_t v) const {
    uint64_t sum = 0, begin = g_.first[v], end = g_.first[v + 1];
    hint(&g_.sources[begin], (end - begin) * sizeof(uint32_t), FARSIDE_READ | FARSIDE_AHEAD(32) | FARSIDE_PRIORITY(3));
    for (uint64_t e = begin; e < end; e++) sum += share_[g_.sources[e]];
    return sum;
  }

  const Graph& g_;
  Array<uint64_t> rank_, share_;  // share: what a vertex contributes to each vertex that it has an edge to
};

class PageRank : public App {
 public:
  PageRank(const Arguments& a, uint64_t iterations)
      : verify_(a.verify), iterations_(iterations), graph_(a), ranks_(graph_) {}
  uint64_t run() {
    for (uint64_t i = 0; i < iterations_; i++) ranks_.iterate();
    return iterations_ * graph_.edges();
  }
  const char* wrong() const {
    if (!ranks_.add_up(iterations_)) return "the ranks do not add up to 1";
    return verify_ && expected() != checksum() ? "wrong ranks" : nullptr;
  }
  uint64_t checksum() const { return ranks_.checksum(); }
  std::string members(double) const {
    return ",\"vertices\":" + std::to_string(graph_.vertices) + ",\"edges\":" + std::to_string(graph_.edges());
  }

 private:
  // Repeats all iterations serially.
  uint64_t expected() const {
    Ranks ranks(graph_);
    for (uint64_t i = 0; i < iterations_; i++) ranks.iterate_simply();
    return ranks.checksum();
  }

  const bool verify_;
  const uint64_t iterations_;
  const Graph graph_;
  Ranks ranks_;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  uint64_t iterations = 6;
  Arguments a = parse(argc, argv, {{"--iterations", &iterations}});
  omp_set_num_threads(static_cast<int>(a.threads));
  return run_app<PageRank>("pagerank", a, iterations);
}
