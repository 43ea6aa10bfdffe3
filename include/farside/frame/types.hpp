// The types of columns, which are types of Apache Arrow, and how values of them are widened for computation.
#ifndef FARSIDE_FRAME_TYPES_HPP
#define FARSIDE_FRAME_TYPES_HPP

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace farside::frame {

enum class type_id : uint8_t {
  boolean,  // one bit each
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
  date32,     // days since 1970-01-01, int32_t
  timestamp,  // units since 1970-01-01 00:00 UTC, int64_t
  utf8,       // int32_t offsets into bytes
};

enum class time_unit : uint8_t { second, millisecond, microsecond, nanosecond };

// unit and time_zone are used by timestamps only. A time zone is kept for other tools; computation is in UTC.
struct data_type {
  type_id id = type_id::int64;
  time_unit unit = time_unit::microsecond;
  std::string time_zone = {};
  bool operator==(const data_type&) const = default;
};

// The type of a C++ value: type_of<double> is float64. bool is stored as bits, by column_builder only.
template <typename T>
constexpr type_id type_of() {
  if constexpr (std::is_same_v<T, bool>) return type_id::boolean;
  else if constexpr (std::is_same_v<T, float>) return type_id::float32;
  else if constexpr (std::is_same_v<T, double>) return type_id::float64;
  else {
    static_assert(std::is_integral_v<T>, "columns have values of bool, an integer type, float or double");
    constexpr int log_bytes = std::countr_zero(sizeof(T));
    return static_cast<type_id>((std::is_signed_v<T> ? 1 : 5) + log_bytes);
  }
}

// Bytes of a value; 0 for boolean and utf8.
constexpr size_t width_of(type_id id) {
  constexpr uint8_t kWidths[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 4, 8, 0};
  return kWidths[static_cast<size_t>(id)];
}

// Calls f with a value of the C++ type that stores `id`, which is neither boolean nor utf8.
template <typename F>
auto with_stored_type(type_id id, F f) {
  switch (id) {
    case type_id::int8:
      return f(int8_t{});
    case type_id::int16:
      return f(int16_t{});
    case type_id::int32:
    case type_id::date32:
      return f(int32_t{});
    case type_id::int64:
    case type_id::timestamp:
      return f(int64_t{});
    case type_id::uint8:
      return f(uint8_t{});
    case type_id::uint16:
      return f(uint16_t{});
    case type_id::uint32:
      return f(uint32_t{});
    case type_id::uint64:
      return f(uint64_t{});
    case type_id::float32:
      return f(float{});
    case type_id::float64:
      return f(double{});
    case type_id::boolean:
    case type_id::utf8:
      break;
  }
  throw std::invalid_argument("farside: the type has no values of a fixed number of bytes");
}

// The widest type of a kind: int64_t, uint64_t or double. Keys, extremes and sums are kept as bits of it.
template <typename T>
using wide =
    std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <typename T>
uint64_t wide_bits(T value) {
  return std::bit_cast<uint64_t>(static_cast<wide<T>>(value));
}
template <typename T>
T from_wide_bits(uint64_t bits) {
  return static_cast<T>(std::bit_cast<wide<T>>(bits));
}

// Maps values to integers in the same order. A NaN is greater than all numbers and equal to every NaN; -0 equals 0.
template <typename T>
uint64_t ordered_bits(T value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return std::numeric_limits<uint64_t>::max();
    auto bits = std::bit_cast<uint64_t>(static_cast<double>(value) + 0.0);  // -0 becomes 0
    return bits & kSign ? ~bits : bits | kSign;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
  } else {
    return value;
  }
}
template <typename T>
T from_ordered_bits(uint64_t order) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (std::is_floating_point_v<T>) {
    if (order == std::numeric_limits<uint64_t>::max()) return std::numeric_limits<T>::quiet_NaN();
    return static_cast<T>(std::bit_cast<double>(order & kSign ? order ^ kSign : ~order));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<int64_t>(order ^ kSign));
  } else {
    return static_cast<T>(order);
  }
}

}  // namespace farside::frame
#endif
