// Analytics that scan arrays of generated taxi rides: columns, selections, group by. An operation is one row that a
// query reads. Sums are of integers, so results do not depend on the order of threads. One hinted line: every query
// reads its columns through Column::hinted_block.
#include <mutex>

#include "app.h"

namespace farside::apps {
namespace {

constexpr uint64_t kBlock = 1024;  // rows that a query handles at a time: one page of a 4-byte column
constexpr unsigned kZones = 263, kHours = 24;

template <typename T>
class Column {
 public:
  explicit Column(uint64_t rows) : values_(make_array<T>(rows)) {}
  T& operator[](uint64_t row) { return values_[row]; }
  // The values of rows [begin, end), which are about to be read in order.
  const T* hinted_block(uint64_t begin, uint64_t end) const {
    hint(&values_[begin], (end - begin) * sizeof(T), FARSIDE_READ | FARSIDE_AHEAD(32));
    return &values_[begin];
  }

 private:
  Array<T> values_;
};

struct Rides {
  static constexpr uint64_t kRowBytes = 4 + 2 + 2 + 1 + 1 + 4 + 4 + 4;
  explicit Rides(uint64_t n)
      : rows(n), pickup_s(n), from(n), to(n), passengers(n), payment(n), metres(n), fare_cents(n), tip_cents(n) {}

  void fill(uint64_t seed, uint64_t row) {
    uint64_t r = number_of(seed, row), more = mix(r);
    pickup_s[row] = static_cast<uint32_t>(row * 3 + r % 3600);                                 // about in order of time
    from[row] = static_cast<uint16_t>(std::min(r >> 16 & 511, r >> 25 & 511) * kZones / 512);  // some zones are busier
    to[row] = static_cast<uint16_t>((r >> 34 & 0xffff) % kZones);
    passengers[row] = static_cast<uint8_t>(1 + std::min(r >> 50 & 7, r >> 53 & 7) % 6);
    payment[row] = static_cast<uint8_t>((r >> 56 & 3) == 0);  // a quarter in cash
    metres[row] = static_cast<uint32_t>(300 + (more & 0xffff) * (more >> 16 & 0xffff) / 120000);
    fare_cents[row] = 300 + metres[row] / 5 + static_cast<uint32_t>(more >> 32 & 255);
    tip_cents[row] = payment[row] ? 0 : fare_cents[row] * static_cast<uint32_t>(more >> 40 & 31) / 100;
  }

  uint64_t rows;
  Column<uint32_t> pickup_s;
  Column<uint16_t> from, to;
  Column<uint8_t> passengers, payment;
  Column<uint32_t> metres, fare_cents, tip_cents;
};

using Groups = std::vector<uint64_t>;

class Analysis : public App {
 public:
  explicit Analysis(const Arguments& a) : threads_(a.threads), rides_(a.size / Rides::kRowBytes) {
    in_parallel(threads_, rides_.rows, [&](unsigned, uint64_t begin, uint64_t end) {
      for (uint64_t row = begin; row < end; row++) rides_.fill(a.seed, row);
    });
  }

  uint64_t run() {
    rides_by_passengers();
    tips_by_hour();
    income_by_zone_and_hour();
    pairs_of_zones();
    longest_rides();
    return rows_read_;
  }

  uint64_t checksum() const { return checksum_; }

 private:
  // Sums up block(begin, end, groups) over all blocks; each thread has separate groups until the end.
  template <typename Block>
  Groups group_by(size_t groups, Block block) {
    Groups total(groups);
    std::mutex mutex;
    in_parallel(threads_, rides_.rows / kBlock + 1, [&](unsigned, uint64_t first, uint64_t last) {
      Groups mine(groups);
      for (uint64_t b = first; b < last; b++) block(b * kBlock, std::min((b + 1) * kBlock, rides_.rows), mine);
      std::lock_guard lock(mutex);
      for (size_t i = 0; i < groups; i++) total[i] += mine[i];
    });
    rows_read_ += rides_.rows;
    for (uint64_t value : total) checksum_ = mix(checksum_ ^ value);
    return total;
  }

  // select passengers, count(*), sum(fare) group by passengers
  void rides_by_passengers() {
    group_by(16, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint8_t* passengers = rides_.passengers.hinted_block(begin, end);
      const uint32_t* fare = rides_.fare_cents.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) {
        g[passengers[i]]++;
        g[8 + passengers[i]] += fare[i];
      }
    });
  }

  // select hour, sum(tip), sum(fare) where payment is by card and distance > 2 km group by hour
  void tips_by_hour() {
    group_by(2 * kHours, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint32_t* time = rides_.pickup_s.hinted_block(begin, end);
      const uint8_t* payment = rides_.payment.hinted_block(begin, end);
      const uint32_t* metres = rides_.metres.hinted_block(begin, end);
      const uint32_t* fare = rides_.fare_cents.hinted_block(begin, end);
      const uint32_t* tip = rides_.tip_cents.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) {
        if (payment[i] != 0 || metres[i] <= 2000) continue;
        uint32_t hour = time[i] / 3600 % kHours;
        g[hour] += tip[i];
        g[kHours + hour] += fare[i];
      }
    });
  }

  // select zone, hour, sum(fare + tip) group by zone, hour
  void income_by_zone_and_hour() {
    group_by(kZones * kHours, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint32_t* time = rides_.pickup_s.hinted_block(begin, end);
      const uint16_t* from = rides_.from.hinted_block(begin, end);
      const uint32_t* fare = rides_.fare_cents.hinted_block(begin, end);
      const uint32_t* tip = rides_.tip_cents.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) g[from[i] * kHours + time[i] / 3600 % kHours] += fare[i] + tip[i];
    });
  }

  // select from, to, count(*) group by from, to
  void pairs_of_zones() {
    group_by(kZones * kZones, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint16_t* from = rides_.from.hinted_block(begin, end);
      const uint16_t* to = rides_.to.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) g[from[i] * kZones + to[i]]++;
    });
  }

  // select sum(fare), sum(metres) where distance is among the longest hundredth: a histogram, then a selection by it
  void longest_rides() {
    constexpr unsigned kBuckets = 512, kMetres = 128;
    Groups lengths = group_by(kBuckets, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint32_t* metres = rides_.metres.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) g[std::min(metres[i] / kMetres, kBuckets - 1)]++;
    });
    uint64_t least = kBuckets, found = 0;
    while (least > 0 && found < rides_.rows / 100) found += lengths[--least];
    group_by(2, [&](uint64_t begin, uint64_t end, Groups& g) {
      const uint32_t* metres = rides_.metres.hinted_block(begin, end);
      const uint32_t* fare = rides_.fare_cents.hinted_block(begin, end);
      for (uint64_t i = 0; i < end - begin; i++) {
        if (metres[i] / kMetres < least) continue;
        g[0] += fare[i];
        g[1] += metres[i];
      }
    });
  }

  unsigned threads_;
  Rides rides_;
  uint64_t checksum_ = 0, rows_read_ = 0;
};

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  return run_app<Analysis>("analytics", parse(argc, argv));
}
