// The analysis of New York's taxi rides that AIFM 8.1.2 measures, over generated rides: how many passengers, how long
// trips take by month, day and hour, distances on the sphere, outliers, copies and shuffles of rows. Each query is
// written twice: as plain loops over arrays, with a hint for each block (--way plain, --hints), and with a data frame
// (--way near, server, automatic). An operation is a row that a query reads. Results are the same in all ways.
#include <farside/frame/data_frame.hpp>

#include <functional>

#include "rides.h"

namespace farside::apps {
namespace {

using frame::aggregate_op, frame::col, frame::column, frame::placement, frame::type_id;

constexpr uint64_t kBlock = 8192;  // rows
constexpr double kEarthKm = 6371, kRadians = 0.017453292519943295;

// A checksum of results. Sums of doubles are rounded, since the ways add in different orders.
class Digest {
 public:
  void add(uint64_t value) { hash_ = mix(hash_ ^ value); }
  void add_real(double value) { add(static_cast<uint64_t>(std::llround(value * 1000))); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

struct Columns {
  explicit Columns(uint64_t n)
      : rows(n),
        pickup_s(make_array<int64_t>(n)),
        dropoff_s(make_array<int64_t>(n)),
        vendor(make_array<int8_t>(n)),
        passengers(make_array<int8_t>(n)),
        miles(make_array<double>(n)),
        fare(make_array<double>(n)),
        from_lon(make_array<double>(n)),
        from_lat(make_array<double>(n)),
        to_lon(make_array<double>(n)),
        to_lat(make_array<double>(n)) {}
  void set(uint64_t row, const Ride& r) {
    pickup_s[row] = r.pickup_s, dropoff_s[row] = r.dropoff_s;
    vendor[row] = r.vendor, passengers[row] = r.passengers;
    miles[row] = r.miles, fare[row] = r.fare;
    from_lon[row] = r.pickup_longitude, from_lat[row] = r.pickup_latitude;
    to_lon[row] = r.dropoff_longitude, to_lat[row] = r.dropoff_latitude;
  }

  uint64_t rows;
  Array<int64_t> pickup_s, dropoff_s;
  Array<int8_t> vendor, passengers;
  Array<double> miles, fare, from_lon, from_lat, to_lon, to_lat;
};

std::vector<int64_t> picked_rows(uint64_t rows, uint64_t seed) {
  std::vector<int64_t> made(rows / 1000);
  for (uint64_t i = 0; i < made.size(); i++) made[i] = static_cast<int64_t>(mix(seed + i) % rows);
  return made;
}

// ---- Plain loops ----

// Sums and counts by group, and the groups in order of appearance.
template <typename Value, size_t kGroups>
struct Groups {
  void add(int64_t group, Value value) {
    auto at = static_cast<uint64_t>(group);
    if (counts[at]++ == 0) order.push_back(at);
    sums[at] += value;
  }
  double mean(uint64_t group) const { return static_cast<double>(sums[group]) / static_cast<double>(counts[group]); }
  uint64_t counts[kGroups] = {};
  Value sums[kGroups] = {};
  std::vector<uint64_t> order;
};

class PlainQueries {
 public:
  PlainQueries(uint64_t rows, uint64_t seed) : c_(rows), picks_(picked_rows(rows, seed)) {
    for (uint64_t row = 0; row < rows; row++) c_.set(row, make_ride(seed, row));
  }

  void aggregate(Digest& d) {
    double sum = 0, least = 1e300, most = 0;
    auto add = [&](uint64_t, double fare) { sum += fare, least = std::min(least, fare), most = std::max(most, fare); };
    each(add, c_.fare);
    d.add_real(sum / static_cast<double>(c_.rows)), d.add_real(least), d.add_real(most);
  }
  void filter_one_percent(Digest& d) {
    filter(
        d, [](double fare) { return fare > kDearFare; }, c_.fare);
  }
  void filter_clean(Digest& d) {
    auto is_clean = [](int64_t from, int64_t to, int8_t passengers) { return passengers > 0 && to - from < 79200; };
    filter(d, is_clean, c_.pickup_s, c_.dropoff_s, c_.passengers);
  }
  void passengers(Digest& d) {
    Groups<double, 128> groups;
    each([&](uint64_t, int8_t p, double miles) { groups.add(p, miles); }, c_.passengers, c_.miles);
    for (uint64_t p : groups.order) d.add(groups.counts[p]), d.add_real(groups.mean(p));
  }
  void hours(Digest& d) {
    Groups<int64_t, 24> groups;
    each([&](uint64_t, int64_t from, int64_t to) { groups.add(from / 3600 % 24, to - from); }, c_.pickup_s,
         c_.dropoff_s);
    for (uint64_t h : groups.order) d.add_real(groups.mean(h));
  }
  void distances(Digest& d) {
    Groups<double, 2> groups;
    auto add = [&](uint64_t, int8_t vendor, double x1, double y1, double x2, double y2) {
      double a = std::sin((y2 - y1) * (kRadians / 2)), b = std::sin((x2 - x1) * (kRadians / 2));
      double h = a * a + std::cos(y1 * kRadians) * std::cos(y2 * kRadians) * (b * b);
      groups.add(vendor - 1, 2 * kEarthKm * std::asin(std::sqrt(h)));
    };
    each(add, c_.vendor, c_.from_lon, c_.from_lat, c_.to_lon, c_.to_lat);
    for (uint64_t v : groups.order) d.add_real(groups.mean(v));
  }
  void join(Digest& d) {
    double sum = 0;
    uint64_t pairs = 0;
    auto has_fee = [&](int8_t passengers) {
      if (passengers != 0 && passengers != 6) return false;
      sum += passengers == 0 ? 0.5 : 2.5;
      pairs++;
      return true;
    };
    filter(d, has_fee, c_.passengers);
    d.add(pairs), d.add_real(sum);
  }
  void top(Digest& d) {
    std::vector<std::pair<double, int64_t>> best;  // a heap; the row is negative, so that earlier rows win
    auto offer = [&](uint64_t row, double miles) {
      std::pair<double, int64_t> at(miles, -static_cast<int64_t>(row));
      if (best.size() == kTop && at < best.front()) return;
      if (best.size() == kTop) std::pop_heap(best.begin(), best.end(), std::greater<>()), best.pop_back();
      best.push_back(at);
      std::push_heap(best.begin(), best.end(), std::greater<>());
    };
    each(offer, c_.miles);
    std::sort(best.rbegin(), best.rend());
    for (const auto& [miles, row] : best) d.add_real(miles), d.add_real(c_.fare[static_cast<uint64_t>(-row)]);
  }
  void gather(Digest& d) { copy(d, {picks_.begin(), picks_.end()}); }

  static constexpr double kDearFare = 35.75;
  static constexpr size_t kTop = 1000;

 private:
  // Calls f(row, value, ...) with the values of each row in the columns.
  template <typename F, typename... T>
  void each(F f, const Array<T>&... columns) const {
    for (uint64_t begin = 0; begin < c_.rows; begin += kBlock) {
      uint64_t end = std::min(begin + kBlock, c_.rows);
      [&](const T*... values) {
        (hint(values, (end - begin) * sizeof(T), FARSIDE_READ | FARSIDE_AHEAD(32)), ...);
        for (uint64_t i = 0; i < end - begin; i++) f(begin + i, values[i]...);
      }(&columns[begin]...);
    }
  }
  // Copies the rows with whose values in the columns is_wanted(value, ...).
  template <typename IsWanted, typename... T>
  void filter(Digest& d, IsWanted is_wanted, const Array<T>&... columns) const {
    std::vector<uint64_t> found;
    auto look = [&](uint64_t row, T... values) {
      if (is_wanted(values...)) found.push_back(row);
    };
    each(look, columns...);
    copy(d, found);
  }
  void copy(Digest& d, const std::vector<uint64_t>& rows) const {
    Columns to(rows.size());
    auto copy_array = [&](auto& from, auto& into) {
      for (size_t i = 0; i < rows.size(); i++) into[i] = from[rows[i]];
    };
    copy_array(c_.pickup_s, to.pickup_s), copy_array(c_.dropoff_s, to.dropoff_s), copy_array(c_.vendor, to.vendor);
    copy_array(c_.passengers, to.passengers), copy_array(c_.miles, to.miles), copy_array(c_.fare, to.fare);
    copy_array(c_.from_lon, to.from_lon), copy_array(c_.from_lat, to.from_lat), copy_array(c_.to_lon, to.to_lon);
    copy_array(c_.to_lat, to.to_lat);
    d.add(rows.size());
    for (size_t i = 0; i < rows.size(); i += 1 + rows.size() / 100)
      d.add(static_cast<uint64_t>(to.pickup_s[i])), d.add_real(to.fare[i]);
  }

  Columns c_;
  std::vector<int64_t> picks_;
};

// ---- Data frames ----

class FrameQueries {
 public:
  FrameQueries(uint64_t rows, uint64_t seed, placement where) : where_(where), picks_(picked_rows(rows, seed)) {
    std::vector<std::function<void(uint64_t, const Ride&)>> setters;
    auto make = [&](const char* name, auto member, frame::data_type type) {
      using T = std::decay_t<decltype(Ride().*member)>;
      auto values = frame::buffer::create(static_cast<int64_t>(rows * sizeof(T)));
      setters.push_back([to = values->as<T>(), member](uint64_t row, const Ride& r) { to[row] = r.*member; });
      rides_.add(name, column(std::move(type), static_cast<int64_t>(rows), 0, nullptr, std::move(values)));
    };
    make("pickup", &Ride::pickup_s, {type_id::timestamp, frame::time_unit::second});
    make("dropoff", &Ride::dropoff_s, {type_id::timestamp, frame::time_unit::second});
    make("vendor", &Ride::vendor, {type_id::int8});
    make("passengers", &Ride::passengers, {type_id::int8});
    make("miles", &Ride::miles, {type_id::float64});
    make("fare", &Ride::fare, {type_id::float64});
    make("pickup_longitude", &Ride::pickup_longitude, {type_id::float64});
    make("pickup_latitude", &Ride::pickup_latitude, {type_id::float64});
    make("dropoff_longitude", &Ride::dropoff_longitude, {type_id::float64});
    make("dropoff_latitude", &Ride::dropoff_latitude, {type_id::float64});
    for (uint64_t row = 0; row < rows; row++) {
      Ride r = make_ride(seed, row);
      for (const auto& set : setters) set(row, r);
    }
    fees_.add("passengers", column::of<int8_t>(std::vector<int8_t>{0, 6}));
    fees_.add("fee", column::of<double>(std::vector<double>{0.5, 2.5}));
  }

  void aggregate(Digest& d) {
    data_frame found = rides_.aggregate({{"mean", aggregate_op::mean, col("fare")},
                                         {"min", aggregate_op::minimum, col("fare")},
                                         {"max", aggregate_op::maximum, col("fare")}},
                                        {}, where_);
    for (const std::string& name : found.names()) d.add_real(found[name].get<double>(0));
  }
  void filter_one_percent(Digest& d) { copied(d, rides_.filter(col("fare") > PlainQueries::kDearFare, where_)); }
  void filter_clean(Digest& d) {
    copied(d, rides_.filter(col("passengers") > 0 && col("dropoff") - col("pickup") < 79200, where_));
  }
  void passengers(Digest& d) {
    data_frame found =
        rides_.group_by({"passengers"}, {{"rides"}, {"miles", aggregate_op::mean, col("miles")}}, {}, where_);
    for (int64_t i = 0; i < static_cast<int64_t>(found.rows()); i++)
      d.add(static_cast<uint64_t>(found["rides"].get<int64_t>(i))), d.add_real(found["miles"].get<double>(i));
  }
  void hours(Digest& d) {
    reals(d, rides_.group_by({{"hour", hour(col("pickup"))}},
                             {{"seconds", aggregate_op::mean, col("dropoff") - col("pickup")}}, {}, where_)["seconds"]);
  }
  void distances(Digest& d) {
    auto x1 = col("pickup_longitude"), y1 = col("pickup_latitude");
    auto x2 = col("dropoff_longitude"), y2 = col("dropoff_latitude");
    auto a = sin((y2 - y1) * (kRadians / 2)), b = sin((x2 - x1) * (kRadians / 2));
    auto km = 2 * kEarthKm * asin(sqrt(a * a + cos(y1 * kRadians) * cos(y2 * kRadians) * (b * b)));
    reals(d, rides_.group_by({"vendor"}, {{"km", aggregate_op::mean, km}}, {}, where_)["km"]);
  }
  void join(Digest& d) {
    data_frame found = rides_.join(fees_, {"passengers"}, {}, where_);
    copied(d, found);
    data_frame sum = found.aggregate({{"fees", aggregate_op::sum, col("fee")}}, {}, where_);
    d.add(found.rows()), d.add_real(sum["fees"].get<double>(0));
  }
  void top(Digest& d) {
    data_frame found = rides_.select({"miles", "fare"})
                           .top_k(PlainQueries::kTop, col("miles"), data_frame::order::descending, {}, where_);
    for (int64_t i = 0; i < static_cast<int64_t>(found.rows()); i++)
      d.add_real(found["miles"].get<double>(i)), d.add_real(found["fare"].get<double>(i));
  }
  void gather(Digest& d) { copied(d, rides_.take(picks_, where_)); }

 private:
  static void reals(Digest& d, const column& c) {
    for (int64_t i = 0; i < c.rows(); i++) d.add_real(c.get<double>(i));
  }
  static void copied(Digest& d, const data_frame& f) {
    auto rows = static_cast<int64_t>(f.rows());
    d.add(f.rows());
    for (int64_t i = 0; i < rows; i += 1 + rows / 100)
      d.add(static_cast<uint64_t>(f["pickup"].get<int64_t>(i))), d.add_real(f["fare"].get<double>(i));
  }

  data_frame rides_, fees_;
  placement where_;
  std::vector<int64_t> picks_;
};

// ---- Measurement ----

struct Result {
  uint64_t checksum = 0;
  double fill_s = 0, run_s = 0;
  std::string times;  // members for report()
};

template <typename Queries, typename... Settings>
Result measure(const Arguments& a, uint64_t repeat, const std::string& only, Settings... settings) {
  constexpr std::pair<const char*, void (Queries::*)(Digest&)> kQueries[] = {{"aggregate", &Queries::aggregate},
                                                                             {"filter_1", &Queries::filter_one_percent},
                                                                             {"filter_99", &Queries::filter_clean},
                                                                             {"passengers", &Queries::passengers},
                                                                             {"hours", &Queries::hours},
                                                                             {"distances", &Queries::distances},
                                                                             {"join", &Queries::join},
                                                                             {"top_k", &Queries::top},
                                                                             {"gather", &Queries::gather}};
  Result result;
  Stopwatch filling;
  Queries queries(a.size / Ride::kBytes, a.seed, settings...);
  result.fill_s = filling.seconds();
  Digest all;
  for (const auto& [name, query] : kQueries) {
    if (!only.empty() && only != name) continue;
    std::vector<double> times;
    for (uint64_t i = 0; i < repeat; i++) {
      Digest d;
      Stopwatch watch;
      (queries.*query)(d);
      times.push_back(watch.seconds());
      if (i == 0) all.add(d.value());
    }
    std::sort(times.begin(), times.end());
    result.run_s += times[times.size() / 2];
    result.times += member((std::string(name) + "_ms").c_str(), times[times.size() / 2] * 1000);
  }
  result.checksum = all.value();
  return result;
}

}  // namespace
}  // namespace farside::apps

int main(int argc, char** argv) {
  using namespace farside::apps;
  std::string way = "near", only;
  uint64_t repeat = 3;
  Arguments a = parse(argc, argv, {{"--way", &way}, {"--repeat", &repeat}, {"--query", &only}});
  Result r;
  using farside::frame::placement;
  if (way == "plain") r = measure<PlainQueries>(a, repeat, only);
  else if (way == "near") r = measure<FrameQueries>(a, repeat, only, placement::near);
  else if (way == "server") r = measure<FrameQueries>(a, repeat, only, placement::server);
  else if (way == "automatic") r = measure<FrameQueries>(a, repeat, only, placement::automatic);
  else usage(argv[0], "--way is plain, near, server or automatic");
  report("taxi", a, r.fill_s, r.run_s, a.size / Ride::kBytes, r.checksum, r.times);
}
