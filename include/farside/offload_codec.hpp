// How arguments and results of functions on the memory server are passed: <farside/offload.hpp> includes this.
#ifndef FARSIDE_OFFLOAD_CODEC_HPP
#define FARSIDE_OFFLOAD_CODEC_HPP

#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace farside::offload::detail {

// The bytes of values, one after the other. Vectors and strings begin with their number of elements.
template <typename T>
struct codec {
  static_assert(std::is_trivially_copyable_v<T>,
                "arguments and results are trivially copyable, or std::string, std::vector or std::pair of such");
  static size_t bytes(const T&) { return sizeof(T); }
  static void put(char*& to, const T& value) {
    memcpy(to, &value, sizeof value);
    to += sizeof value;
  }
  static T get(const char*& from) {
    std::aligned_storage_t<sizeof(T), alignof(T)> copy;
    memcpy(&copy, from, sizeof copy);
    from += sizeof(T);
    return *std::launder(reinterpret_cast<T*>(&copy));
  }
};

template <typename Sequence>
struct sequence_codec {
  using element = typename Sequence::value_type;
  static_assert(std::is_trivially_copyable_v<element>, "the elements are trivially copyable");
  static size_t bytes(const Sequence& value) { return sizeof(size_t) + value.size() * sizeof(element); }
  static void put(char*& to, const Sequence& value) {
    codec<size_t>::put(to, value.size());
    if (!value.empty()) memcpy(to, value.data(), value.size() * sizeof(element));
    to += value.size() * sizeof(element);
  }
  static Sequence get(const char*& from) {
    Sequence value(codec<size_t>::get(from), element());
    if (!value.empty()) memcpy(value.data(), from, value.size() * sizeof(element));
    from += value.size() * sizeof(element);
    return value;
  }
};
template <typename T>
struct codec<std::vector<T>> : sequence_codec<std::vector<T>> {};
template <>
struct codec<std::string> : sequence_codec<std::string> {};

template <typename A, typename B>
struct codec<std::pair<A, B>> {
  static size_t bytes(const std::pair<A, B>& value) {
    return codec<A>::bytes(value.first) + codec<B>::bytes(value.second);
  }
  static void put(char*& to, const std::pair<A, B>& value) {
    codec<A>::put(to, value.first);
    codec<B>::put(to, value.second);
  }
  static std::pair<A, B> get(const char*& from) {
    A first = codec<A>::get(from);
    return {std::move(first), codec<B>::get(from)};
  }
};

template <typename T>
std::vector<char> encode(const T& value) {
  std::vector<char> bytes(codec<T>::bytes(value));
  char* to = bytes.data();
  codec<T>::put(to, value);
  return bytes;
}

}  // namespace farside::offload::detail
#endif
