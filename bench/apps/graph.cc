// Graph kernels on a graph that grows (Atlas 5.2 runs GraphOne and Aspen): Kronecker edges (R-MAT with a = 0.57, b = c
// = 0.19, as in GAP and Graph 500) arrive in batches, and PageRank iterates after each; then breadth-first search and
// connected components. The neighbours of a vertex are in a chain of blocks of 128 bytes, newest first, so those of one
// vertex are not neighbours in memory. Blocks are elements of a std::deque or of a farside::vector; what there is for
// each vertex is in ordinary vectors. An operation is an edge that a kernel follows. One hinted line: the block.
#include "fibers.h"
#include "kinds.h"

namespace farside::apps {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr uint64_t kVertexBytes = 92, kEdgeBytes = 9;  // an edge is stored in both directions; half of a block is empty
constexpr uint64_t kMinDegree = 16;                    // on average
constexpr unsigned kBatches = 3;
constexpr uint64_t kOne = uint64_t{1} << 62;

unsigned scale_of(uint64_t bytes) {
  unsigned scale = 1;
  while ((uint64_t{2} << scale) * (kVertexBytes + kMinDegree * kEdgeBytes) <= bytes) scale++;
  return scale;
}

struct Edge {
  uint32_t from, to;
};

// Both vertices bit by bit; then renumbered, so that those with many edges are not neighbours.
Edge draw_edge(uint64_t seed, uint64_t number, unsigned scale) {
  uint64_t random = number_of(seed, number), from = 0, to = 0;
  for (unsigned bit = 0; bit < scale; bit++) {
    double u = unit(random = mix(random));
    from = from << 1 | (u >= 0.76);
    to = to << 1 | ((u >= 0.57 && u < 0.76) || u >= 0.95);
  }
  auto label = [mask = (uint64_t{1} << scale) - 1](uint64_t v) {
    return static_cast<uint32_t>(v * 0x9e3779b97f4a7c15 & mask);
  };
  return {label(from), label(to)};
}

template <typename Kind>
class Adjacency {
 public:
  explicit Adjacency(uint64_t vertices) : newest_(vertices, kNone), degree_(vertices) {}
  uint64_t vertices() const { return newest_.size(); }
  uint64_t degree(uint64_t v) const { return degree_[v]; }

  void add(uint32_t from, uint32_t to) {
    typename Kind::Scope scope;
    if (degree_[from]++ % Block::kMost == 0) {
      blocks_.push_back(Block{newest_[from], {}});
      newest_[from] = static_cast<uint32_t>(blocks_.size() - 1);
    }
    blocks_.get_mut(newest_[from], scope).to[(degree_[from] - 1) % Block::kMost] = to;
  }

  // Calls use(neighbour) for each edge of the vertex.
  template <typename Use>
  void each(uint64_t v, Use use) const {
    uint32_t left = degree_[v];
    for (uint32_t at = newest_[v]; left > 0;) {
      typename Kind::Scope scope;
      const Block& block = blocks_.get(at, scope);
      uint32_t here = (left - 1) % Block::kMost + 1;
      for (uint32_t i = 0; i < here; i++) use(block.to[i]);
      left -= here;
      at = block.older;
    }
  }

 private:
  struct Block {
    static constexpr uint32_t kMost = 31;
    uint32_t older;
    uint32_t to[kMost];
  };
  typename Kind::template Records<Block> blocks_;
  std::vector<uint32_t> newest_, degree_;  // degree: all blocks of a vertex but the newest are full
};

template <typename Kind>
class Graph : public App {
 public:
  explicit Graph(const Arguments& a)
      : a_(a),
        scale_(scale_of(a.size)),
        edges_((a.size - (kVertexBytes << scale_)) / kEdgeBytes),
        graph_(uint64_t{1} << scale_),
        rank_(graph_.vertices(), kOne / graph_.vertices()),
        share_(graph_.vertices()),
        level_(graph_.vertices(), kNone),
        label_(graph_.vertices()) {}

  uint64_t run() {
    for (unsigned b = 0; b < kBatches; b++) {
      add_edges(edges_ * b / kBatches, edges_ * (b + 1) / kBatches);
      iterate_ranks();
    }
    search();
    while (spread_labels()) {}
    return followed_;
  }

  // Neighbours are in one component, and their distances from the start differ by 1 at most.
  const char* wrong() const {
    bool good = true;
    for (uint64_t v = 0; v < graph_.vertices(); v++) {
      graph_.each(v, [&](uint32_t u) {
        uint64_t nearer = std::min(level_[u], level_[v]), farther = std::max(level_[u], level_[v]);
        good = good && label_[u] == label_[v] && farther - nearer <= 1;
      });
    }
    return good ? nullptr : "neighbours are in two components, or their distances differ by more than 1";
  }
  uint64_t checksum() const {
    uint64_t sum = 0;
    for (uint64_t v = 0; v < graph_.vertices(); v++) sum += mix(rank_[v] ^ mix(v ^ mix(label_[v] ^ mix(level_[v]))));
    return sum;
  }
  std::string members(double) const {
    return ",\"vertices\":" + std::to_string(graph_.vertices()) + ",\"edges\":" + std::to_string(edges_);
  }

 private:
  void add_edges(uint64_t begin, uint64_t end) {
    for (uint64_t e = begin; e < end; e++) {
      Edge edge = draw_edge(a_.seed, e, scale_);
      graph_.add(edge.from, edge.to);
      graph_.add(edge.to, edge.from);
    }
  }

  // The sum of work(v) of all vertices.
  template <typename Work>
  uint64_t sum_over_vertices(Work work) const {
    return sum_on_fibers(a_.threads, a_.fibers, graph_.vertices(), [&](uint64_t, uint64_t begin, uint64_t end) {
      uint64_t sum = 0;
      for (uint64_t v = begin; v < end; v++) sum += work(v);
      return sum;
    });
  }

  // Ranks in fixed point, damped by 17/20, so their sums do not depend on the order.
  void iterate_ranks() {
    for (uint64_t v = 0; v < graph_.vertices(); v++) share_[v] = graph_.degree(v) ? rank_[v] / graph_.degree(v) : 0;
    followed_ += sum_over_vertices([&](uint64_t v) {
      uint64_t sum = 0;
      graph_.each(v, [&](uint32_t u) { sum += share_[u]; });
      rank_[v] = kOne / 20 * 3 / graph_.vertices() + sum / 20 * 17;
      return graph_.degree(v);
    });
  }

  // Breadth first from the vertex with most edges; a level at a time.
  void search() {
    uint64_t start = 0;
    for (uint64_t v = 0; v < graph_.vertices(); v++) start = graph_.degree(v) > graph_.degree(start) ? v : start;
    level_[start] = 0;
    for (uint32_t level = 0, found = 1; found > 0; level++) {
      std::atomic<uint32_t> next{0};
      followed_ += sum_over_vertices([&](uint64_t v) -> uint64_t {
        if (__atomic_load_n(&level_[v], __ATOMIC_RELAXED) != level) return 0;
        graph_.each(v, [&](uint32_t u) {
          uint32_t none = kNone;
          next += __atomic_compare_exchange_n(&level_[u], &none, level + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        });
        return graph_.degree(v);
      });
      found = next;
    }
  }

  // The label of a component is its lowest vertex. Each vertex takes the lowest label among its neighbours; false: none
  // has changed. The first call gives each its own number.
  bool spread_labels() {
    if (before_.empty()) {
      for (uint64_t v = 0; v < graph_.vertices(); v++) label_[v] = static_cast<uint32_t>(v);
    }
    before_ = label_;
    followed_ += sum_over_vertices([&](uint64_t v) {
      graph_.each(v, [&](uint32_t u) { label_[v] = std::min(label_[v], before_[u]); });
      return graph_.degree(v);
    });
    return before_ != label_;
  }

  Arguments a_;
  unsigned scale_;
  uint64_t edges_;
  Adjacency<Kind> graph_;
  std::vector<uint64_t> rank_, share_;
  std::vector<uint32_t> level_, label_, before_;
  uint64_t followed_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) { return farside::apps::run_over_types<farside::apps::Graph>("graph", argc, argv); }
