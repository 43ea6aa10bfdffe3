// Lookups of macroscopic cross sections, the inner loop of Monte Carlo neutron transport, with the data structures of
// XSBench: a grid of energies for each nuclide, their union, and for each point of the union its position in every
// nuclide's grid. Materials have as many nuclides as in the reactor model that XSBench uses, and are drawn about as
// often; all other data are random. An operation is one lookup. Two hinted lines: the row of the union's index, used
// once, is evicted first (priority 3); the points of nuclides' grids, which all lookups share, are kept.
#include <bit>
#include <numeric>

#include "app.h"

namespace farside::apps {
namespace {

constexpr unsigned kNuclides = 355, kReactions = 5;
constexpr unsigned kNuclidesIn[] = {321, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9};  // of each material; the first is fuel
constexpr unsigned kPerMille[] = {140, 52, 275, 134, 154, 64, 66, 55, 8, 14, 25, 13};  // of lookups
constexpr unsigned kMaterials = std::size(kNuclidesIn);
constexpr uint64_t kCheckEvery = 256;  // lookups

struct Point {
  double energy, xs[kReactions];
};
struct Row {
  uint32_t below[kNuclides];  // for each nuclide: its last point that is not above
};
struct Share {
  uint32_t nuclide;
  double density;
};
struct Sums {
  double xs[kReactions] = {};
  uint64_t digest() const {
    uint64_t digest = 0;
    for (double x : xs) digest = mix(digest ^ std::bit_cast<uint64_t>(x));
    return digest;
  }
};

class Simulation : public App {
 public:
  explicit Simulation(const Arguments& a)
      : a_(a),
        points_(std::max<uint64_t>(a.size / (kNuclides * (sizeof(Point) + sizeof(double) + sizeof(Row))), 2)),
        grids_(make_array<Point>(kNuclides * points_)),
        energies_(make_array<double>(kNuclides * points_)),
        index_(make_array<Row>(kNuclides * points_)) {
    in_parallel(a.threads, kNuclides, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t n = begin; n < end; n++) fill_grid(n);
    });
    std::sort(&energies_[0], &energies_[kNuclides * points_]);
    in_parallel(a.threads, kNuclides * points_,
                [&](unsigned, uint64_t begin, uint64_t end) { fill_index(begin, end); });
    for (unsigned m = 0; m < kMaterials; m++) fill_material(m);
  }

  uint64_t run() {
    uint64_t lookups = a_.operations ? a_.operations : a_.size / 512, check_every = a_.verify ? 1 : kCheckEvery;
    checksum_ = sum_in_parallel(a_.threads, lookups, [&](uint64_t begin, uint64_t end) {
      uint64_t sum = 0;
      for (uint64_t i = begin; i < end; i++) {
        uint64_t drawn = mix(mix(a_.seed) + i), material = material_of(mix(drawn));
        double energy = unit(drawn);
        uint64_t digest = look_up(energy, material).digest();
        if (i % check_every == 0 && digest != search(energy, material).digest()) wrong_ = true;
        sum += mix(digest ^ i);
      }
      return sum;
    });
    return lookups;
  }
  const char* wrong() const { return wrong_ ? "a lookup differs from a direct search" : nullptr; }
  uint64_t checksum() const { return checksum_; }

 private:
  uint64_t random(uint64_t number) const { return number_of(a_.seed, number); }

  void fill_grid(uint64_t nuclide) {
    Point* grid = &grids_[nuclide * points_];
    for (uint64_t p = 0; p < points_; p++) {
      uint64_t number = (nuclide * points_ + p) * (kReactions + 1);
      grid[p].energy = unit(random(number));
      for (unsigned x = 0; x < kReactions; x++) grid[p].xs[x] = unit(random(number + 1 + x));
    }
    std::sort(grid, grid + points_, [](const Point& a, const Point& b) { return a.energy < b.energy; });
    for (uint64_t p = 0; p < points_; p++) energies_[nuclide * points_ + p] = grid[p].energy;
  }

  void fill_index(uint64_t begin, uint64_t end) {
    if (begin == end) return;
    Row row;
    for (unsigned n = 0; n < kNuclides; n++) row.below[n] = static_cast<uint32_t>(below(n, energies_[begin]));
    for (uint64_t i = begin; i < end; i++) {
      for (unsigned n = 0; n < kNuclides; n++) {
        while (row.below[n] + 2 < points_ && grids_[n * points_ + row.below[n] + 1].energy <= energies_[i])
          row.below[n]++;
      }
      index_[i] = row;
    }
  }

  void fill_material(unsigned material) {
    std::vector<uint32_t> all(kNuclides);
    std::iota(all.begin(), all.end(), 0);
    for (unsigned i = 0; i < kNuclidesIn[material]; i++) {
      uint64_t drawn = mix(a_.seed ^ mix(material * kNuclides + i));
      std::swap(all[i], all[i + drawn % (kNuclides - i)]);
      materials_[material].push_back({all[i], unit(mix(drawn))});
    }
  }

  // The last point of a nuclide whose energy is not above, but not the last of all; the first if all are above.
  uint64_t below(unsigned nuclide, double energy) const {
    const Point *grid = &grids_[nuclide * points_], *inner = grid + 1, *last = grid + points_ - 1;
    return static_cast<uint64_t>(
        std::upper_bound(inner, last, energy, [](double e, const Point& p) { return e < p.energy; }) - inner);
  }

  static uint64_t material_of(uint64_t random) {
    uint64_t drawn = random % 1000, material = 0;
    for (; drawn >= kPerMille[material]; material++) drawn -= kPerMille[material];
    return material;
  }

  Sums look_up(double energy, uint64_t material) const {
    const double* begin = &energies_[0];
    auto place = std::upper_bound(begin + 1, begin + kNuclides * points_, energy) - 1 - begin;
    const Row& row = index_[static_cast<uint64_t>(place)];
    hint(&row, sizeof row, FARSIDE_READ | FARSIDE_PRIORITY(3));
    Sums sums;
    for (const Share& s : materials_[material]) {
      const Point* point = &grids_[s.nuclide * points_ + row.below[s.nuclide]];
      hint(point, 2 * sizeof *point, FARSIDE_READ);
      add(sums, point, energy, s.density);
    }
    return sums;
  }

  // The same without the union, to check look_up().
  Sums search(double energy, uint64_t material) const {
    Sums sums;
    for (const Share& s : materials_[material])
      add(sums, &grids_[s.nuclide * points_ + below(s.nuclide, energy)], energy, s.density);
    return sums;
  }

  // Interpolates between a point and the next one.
  static void add(Sums& sums, const Point* point, double energy, double density) {
    double part = (energy - point[0].energy) / (point[1].energy - point[0].energy);
    for (unsigned x = 0; x < kReactions; x++)
      sums.xs[x] += density * (point[0].xs[x] + part * (point[1].xs[x] - point[0].xs[x]));
  }

  Arguments a_;
  uint64_t points_;  // of each nuclide
  Array<Point> grids_;
  Array<double> energies_;  // of all grids, in order
  Array<Row> index_;        // a row for each energy
  std::vector<Share> materials_[kMaterials];
  std::atomic<bool> wrong_{false};
  uint64_t checksum_ = 0;  // the sum of the digests of all lookups
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<Simulation>("cross_sections", parse(argc, argv));
}
