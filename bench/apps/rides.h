// Generated taxi rides with the distributions of New York's public records: times of day, short distances with a long
// tail, mostly one passenger, some damaged records (no passengers, impossible durations).
#pragma once
#include "app.h"

namespace farside::apps {

struct Ride {
  int64_t pickup_s, dropoff_s;  // since 1970, within 2016
  int8_t vendor, passengers;
  double miles, fare;
  double pickup_longitude, pickup_latitude, dropoff_longitude, dropoff_latitude;

  static constexpr uint64_t kBytes = 2 * 8 + 2 * 1 + 6 * 8;  // of a row in columns
};

// Two random numbers of 32 bits to a value with a bell-shaped distribution, in units of its standard deviation.
inline double bell(uint64_t random) {
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += static_cast<double>(random >> (16 * i) & 0xffff) / 0x10000;
  return (sum - 2) * 1.7320508075688772;
}

inline int64_t hour_of(uint64_t random) {  // few rides at night, most in the evening
  constexpr int kRidesInHour[] = {38, 28, 21, 16, 12, 11, 24, 41, 48, 49, 47, 49,
                                  52, 51, 54, 53, 47, 56, 66, 67, 62, 62, 60, 51};
  int at = static_cast<int>(random % 1065), hour = 0;
  while (at >= kRidesInHour[hour]) at -= kRidesInHour[hour++];
  return hour;
}

// Ride number `row` of a seed.
inline Ride make_ride(uint64_t seed, uint64_t row) {
  constexpr int64_t kFirstSecond = 1451606400;  // 2016-01-01
  constexpr int8_t kPassengers[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 6};
  uint64_t a = mix(seed * 0x10000000000 + row), b = mix(a), c = mix(b), d = mix(c), e = mix(d);
  Ride r;
  r.pickup_s = kFirstSecond + static_cast<int64_t>(a % 182) * 86400 + hour_of(a >> 16) * 3600 +
               static_cast<int64_t>(a >> 40) % 3600;
  r.vendor = static_cast<int8_t>(1 + (b % 100 < 53));
  r.passengers = b >> 8 & 4095 ? kPassengers[b >> 20 & 15] : int8_t{0};
  r.pickup_longitude = -73.974 + 0.02 * bell(c);
  r.pickup_latitude = 40.751 + 0.02 * bell(d);
  double length = std::exp(0.35 + 0.8 * bell(e)) / 100;  // degrees
  double angle = unit(mix(e)) * 6.283185307179586;
  r.dropoff_longitude = r.pickup_longitude + length * std::cos(angle);
  r.dropoff_latitude = r.pickup_latitude + length * std::sin(angle) * 0.75;
  r.miles = length * 53 * 1.35;
  double miles_per_hour = 8 + 6 * unit(b);
  auto seconds = static_cast<int64_t>(r.miles / miles_per_hour * 3600) + 90;
  r.dropoff_s = r.pickup_s + ((e >> 50) % 1000 == 0 ? 86300 : seconds);  // meters that were left on
  r.fare = 2.5 + std::round(10 * r.miles) / 4 + static_cast<double>(seconds / 60) * 0.5;
  return r;
}

}  // namespace farside::apps
