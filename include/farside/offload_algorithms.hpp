// Algorithms of the standard library on arrays in far memory, executed by calls (offload.hpp): where the data is, and
// one round trip for each. C++17; link with -lfarside.
//
//   bool (*old)(const int&, const int&) = [](const int& age, const int& limit) { return age >= limit; };
//   size_t adults = farside::offload::count_if(ages, n, old, 18).value();
//
// The arrays are plain memory: [data, data + count), of trivially copyable elements. Functions are lambdas without
// captures; find_if and count_if take a further argument for them, by value. mode, errors, threads: as of call.
#ifndef FARSIDE_OFFLOAD_ALGORITHMS_HPP
#define FARSIDE_OFFLOAD_ALGORITHMS_HPP

#include <farside/offload.hpp>

#include <algorithm>
#include <functional>

namespace farside::offload {

namespace detail {

template <typename T>
struct array {
  T* data;
  size_t count;
};

// A lambda by its distance from `run`, which is the same in every process.
template <typename Pointer>
struct relative {
  Pointer at(void* base) const { return reinterpret_cast<Pointer>(reinterpret_cast<intptr_t>(base) + distance); }
  static relative of(Pointer function, void* base) {
    return {reinterpret_cast<intptr_t>(function) - reinterpret_cast<intptr_t>(base)};
  }
  intptr_t distance;
};

template <typename T, typename A>
using predicate = bool (*)(const T&, const A&);
template <typename T, typename A>
struct search {
  array<const T> in;
  A argument;
  relative<predicate<T, A>> matches;
};

template <typename T, typename A>
__attribute__((visibility("hidden"))) size_t find_if(const search<T, A>& s) {
  auto matches = s.matches.at(reinterpret_cast<void*>(find_if<T, A>));
  auto* end = s.in.data + s.in.count;
  return static_cast<size_t>(std::find_if(s.in.data, end, [&](const T& v) { return matches(v, s.argument); }) -
                             s.in.data);
}
template <typename T, typename A>
__attribute__((visibility("hidden"))) size_t count_if(const search<T, A>& s) {
  auto matches = s.matches.at(reinterpret_cast<void*>(count_if<T, A>));
  auto* end = s.in.data + s.in.count;
  return static_cast<size_t>(std::count_if(s.in.data, end, [&](const T& v) { return matches(v, s.argument); }));
}

template <typename T, typename R>
using accumulator = R (*)(R, const T&);
template <typename T, typename R>
struct reduction {
  array<const T> in;
  R initial;
  relative<accumulator<T, R>> add;
};
template <typename T, typename R>
__attribute__((visibility("hidden"))) R reduce(const reduction<T, R>& r) {
  auto add = r.add.at(reinterpret_cast<void*>(reduce<T, R>));
  R all = r.initial;
  for (size_t i = 0; i < r.in.count; i++) all = add(all, r.in.data[i]);
  return all;
}

template <typename T>
__attribute__((visibility("hidden"))) void copy(const std::pair<array<const T>, T*>& a) {
  memmove(a.second, a.first.data, a.first.count * sizeof(T));
}
template <typename T>
__attribute__((visibility("hidden"))) void sort(const array<T>& a) {
  std::sort(a.data, a.data + a.count);
}
template <typename T>
__attribute__((visibility("hidden"))) std::vector<T> gather(const std::pair<array<const T>, std::vector<size_t>>& a) {
  std::vector<T> values;
  values.reserve(a.second.size());
  for (size_t at : a.second) values.push_back(a.first.data[at]);
  return values;
}

template <typename T, typename Index>
struct shuffle {
  const T* from;
  array<const Index> indexes;
  T* to;
};
template <typename T, typename Index>
__attribute__((visibility("hidden"))) void gather_into(const shuffle<T, Index>& s) {
  for (size_t i = 0; i < s.indexes.count; i++) s.to[i] = s.from[s.indexes.data[i]];
}

}  // namespace detail

// The index of the first element for which matches(element, argument) is true; count: there is none.
template <typename T, typename A>
result<size_t> find_if(const T* data, size_t count, bool (*matches)(const T&, const A&), const A& argument,
                       mode where = mode::automatic) {
  auto run = detail::find_if<T, A>;
  detail::search<T, A> s = {{data, count}, argument, {}};
  s.matches = decltype(s.matches)::of(matches, reinterpret_cast<void*>(run));
  return call(run, s, {{data, count}}, {}, where);
}
template <typename T, typename A>
result<size_t> count_if(const T* data, size_t count, bool (*matches)(const T&, const A&), const A& argument,
                        mode where = mode::automatic) {
  auto run = detail::count_if<T, A>;
  detail::search<T, A> s = {{data, count}, argument, {}};
  s.matches = decltype(s.matches)::of(matches, reinterpret_cast<void*>(run));
  return call(run, s, {{data, count}}, {}, where);
}
// add(add(initial, first element), second) and so on, in order.
template <typename T, typename R>
result<R> reduce(const T* data, size_t count, R initial, R (*add)(R, const T&), mode where = mode::automatic) {
  auto run = detail::reduce<T, R>;
  detail::reduction<T, R> r = {{data, count}, initial, {}};
  r.add = decltype(r.add)::of(add, reinterpret_cast<void*>(run));
  return call(run, r, {{data, count}}, {}, where);
}
// From far memory to far memory; the arrays may overlap.
template <typename T>
result<void> copy(const T* data, size_t count, T* to, mode where = mode::automatic) {
  return call(detail::copy<T>, {{data, count}, to}, {{data, count}}, {{to, count}}, where);
}
// By operator<. After an error with written_undefined the order, and equal elements, are undefined.
template <typename T>
result<void> sort(T* data, size_t count, mode where = mode::automatic) {
  return call(detail::sort<T>, {data, count}, {}, {{data, count}}, where);
}
// The elements at these indexes, which are less than count. At most 1 MiB of both.
template <typename T>
result<std::vector<T>> gather(const T* data, size_t count, const std::vector<size_t>& indexes,
                              mode where = mode::automatic) {
  return call(detail::gather<T>, {{data, count}, indexes}, {{data, count}}, {}, where);
}

// From far memory to far memory: to[i] = data[indexes[i]] for each of `size` indexes, which are less than count.
// Nothing but the call moves. The arrays do not overlap. Source of the idea: AIFM 5.1, "Shuffle".
template <typename T, typename Index>
result<void> gather(const T* data, size_t count, const Index* indexes, size_t size, T* to,
                    mode where = mode::automatic) {
  return call(detail::gather_into<T, Index>, {data, {indexes, size}, to}, {{data, count}, {indexes, size}},
              {{to, size}}, where);
}

}  // namespace farside::offload
#endif
