// Algorithms on farside::vector, farside::array and farside::list, executed where the data is, by calls
// (<farside/offload.hpp>). C++20; link with -lfarside.
//
//   bool (*old)(const int&, const int&) = [](const int& age, const int& limit) { return age >= limit; };
//   farside::vector<int> ages = {17, 18, 40};
//   size_t adults = farside::offload::count_if(ages, old, 18).value();
//
// As <farside/offload_algorithms.hpp> for plain arrays: functions are lambdas without captures; mode, errors: as of
// call. Calls read the containers only: far objects may be moved while a function would write them. So sort() sorts a
// copy in plain far memory, from where the program writes the container.
//
// The container must not be changed meanwhile. A call names up to 255 runs of adjacent pages and 32,768 chunks (16
// bytes each), on one server; larger or scattered containers take several calls, one after the other. So it pays for
// chunks of many elements, the default, that were filled in order. Without servers that offer calls, and with
// mode::local, the program reads the elements, prefetched as by for_each.
//
// Cost, besides the calls: 10 to 20 ns for each chunk. While a call lasts, the evacuator waits for its scope.
// Thread-safety: as reading the container. Source of the idea: AIFM 4.2.4, 5.1 (docs/references.md).
#ifndef FARSIDE_CONTAINERS_OFFLOAD_ALGORITHMS_HPP
#define FARSIDE_CONTAINERS_OFFLOAD_ALGORITHMS_HPP

#include <farside/containers/array.hpp>
#include <farside/containers/list.hpp>
#include <farside/containers/vector.hpp>
#include <farside/offload_algorithms.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <span>

namespace farside::offload {

// A container of far chunks.
template <typename C>
concept chunked = requires(const C& c) {
  typename C::pieces;
  c.size();
};

namespace detail {

template <typename T>
using piece_list = std::vector<array<const T>>;

// Pages of one server, as runs of adjacent ones.
class page_runs {
 public:
  // False: the runs are full without these bytes, or another server holds them.
  bool add(const void* data, size_t bytes) {
    auto begin = reinterpret_cast<uintptr_t>(data);
    size_t same = 0;
    int server = farside_offload_place(data, bytes, &same);
    if (server >= 0 && same < bytes) server = -1;
    if (runs_.empty()) server_ = server;
    bool adjacent = !runs_.empty() && begin / kPage >= runs_.back().first && begin / kPage <= runs_.back().last + 1;
    bool full = !adjacent && runs_.size() == kMaxRuns;
    if (full || server != server_) return false;
    if (!adjacent) runs_.push_back({begin / kPage, begin / kPage});
    runs_.back().last = std::max(runs_.back().last, (begin + bytes - 1) / kPage);
    return true;
  }
  offload::ranges ranges() const {
    offload::ranges all;
    for (const run& r : runs_)
      all.emplace_back(reinterpret_cast<void*>(r.first * kPage), (r.last - r.first + 1) * kPage);
    return all;
  }

 private:
  static constexpr size_t kPage = farside::detail::kPage;
  static constexpr size_t kMaxRuns = FARSIDE_OFFLOAD_MAX_RANGES - 1;  // one is left for what the call writes
  struct run {
    uintptr_t first, last;  // numbers of pages
  };
  std::vector<run> runs_;
  int server_ = -1;  // -1: none that executes calls, or several
};

// The pieces of one call, and the pages that they are on.
template <typename T>
class batch {
 public:
  // False: the batch is full without the piece, or another server holds it.
  bool add(std::span<const T> piece) {
    if (pieces_.size() == kMaxPieces || !runs_.add(piece.data(), piece.size_bytes())) return false;
    pieces_.push_back({piece.data(), piece.size()});
    elements_ += piece.size();
    return true;
  }
  const piece_list<T>& pieces() const { return pieces_; }
  size_t elements() const { return elements_; }
  offload::ranges ranges() const { return runs_.ranges(); }

 private:
  static constexpr size_t kMaxPieces = FARSIDE_OFFLOAD_MAX_BYTES / 2 / sizeof(array<const T>);
  piece_list<T> pieces_;
  page_runs runs_;
  size_t elements_ = 0;
};

// Calls each(batch) for all elements, in order, until it returns false.
template <typename C, typename Each>
void for_each_batch(const C& container, Each each) {
  using T = typename C::value_type;
  typename C::pieces rest(container);
  bool more = true;
  while (more && !rest.is_at_end()) {
    deref_scope scope;  // keeps the objects where they are until the call has ended
    batch<T> next;
    while (!rest.is_at_end()) {
      auto ahead = rest;
      if (!next.add(ahead.template next<false>(scope))) break;
      rest = ahead;
    }
    more = each(next);
  }
}
// Calls each(piece) for all elements, in order, until it returns false. Fetches them.
template <typename C, typename Each>
void for_each_piece(const C& container, Each each) {
  typename C::pieces rest(container);
  bool more = true;
  while (more && !rest.is_at_end()) {
    deref_scope scope;
    more = each(rest.template next<true>(scope));
  }
}

// What a call does with its pieces: the result of the calls before, and a function with its argument.
template <typename R, typename Function, typename A>
struct step {
  R before;
  relative<Function> function;
  A argument;
};
template <typename T, typename R, typename Function, typename A>
using step_arguments = std::pair<step<R, Function, A>, piece_list<T>>;
struct no_argument {};

// Calls each(element) for all elements of the pieces, in order, until it returns false.
template <typename T, typename Each>
void for_each_element(const piece_list<T>& pieces, Each each) {
  for (const auto& piece : pieces) {
    for (size_t i = 0; i < piece.count; i++) {
      if (!each(piece.data[i])) return;
    }
  }
}

template <typename T, typename A>
__attribute__((visibility("hidden"))) size_t count_step(const step_arguments<T, size_t, predicate<T, A>, A>& a) {
  auto matches = a.first.function.at(reinterpret_cast<void*>(count_step<T, A>));
  size_t count = a.first.before;
  for_each_element(a.second, [&](const T& element) {
    count += matches(element, a.first.argument);
    return true;
  });
  return count;
}
// The index of the first element that matches; that behind the last piece if there is none.
template <typename T, typename A>
__attribute__((visibility("hidden"))) size_t find_step(const step_arguments<T, size_t, predicate<T, A>, A>& a) {
  auto matches = a.first.function.at(reinterpret_cast<void*>(find_step<T, A>));
  size_t index = a.first.before;
  for_each_element(a.second, [&](const T& element) {
    if (matches(element, a.first.argument)) return false;
    index++;
    return true;
  });
  return index;
}
template <typename T, typename R>
__attribute__((visibility("hidden"))) R reduce_step(const step_arguments<T, R, accumulator<T, R>, no_argument>& a) {
  auto add = a.first.function.at(reinterpret_cast<void*>(reduce_step<T, R>));
  R all = a.first.before;
  for_each_element(a.second, [&](const T& element) {
    all = add(all, element);
    return true;
  });
  return all;
}

template <typename T>
__attribute__((visibility("hidden"))) void copy_pieces(const std::pair<T*, piece_list<T>>& a) {
  T* to = a.first;
  for_each_element(a.second, [&](const T& element) {
    *to++ = element;
    return true;
  });
}

// Makes call_for(result so far, batch) for one batch after the other, until an error, or the end, or until more(result,
// batch) is false.
template <typename R, typename C, typename CallFor, typename More>
result<R> call_for_each_batch(const C& container, typename result<R>::stored initial, CallFor call_for, More more) {
  result<R> all = {std::move(initial), container.size() > 0};
  for_each_batch(container, [&](const batch<typename C::value_type>& next) {
    bool on_server = all.on_server();
    all = call_for(*all, next);
    if (!all) return false;
    all = {*all, on_server && all.on_server()};
    return more(*all, next);
  });
  return all;
}

// As call_for_each_batch, where each call is of run, which gets the result of the one before.
template <typename C, typename R, typename Function, typename A, typename More>
result<R> call_in_steps(const C& container, R (*run)(const step_arguments<typename C::value_type, R, Function, A>&),
                        R initial, Function function, const A& argument, mode where, More more) {
  auto relative_function = relative<Function>::of(function, reinterpret_cast<void*>(run));
  auto step = [&](const R& before, const batch<typename C::value_type>& next) {
    return call(run, {{before, relative_function, argument}, next.pieces()}, next.ranges(), {}, where);
  };
  return call_for_each_batch<R>(container, std::move(initial), step, more);
}

template <typename T>
__attribute__((visibility("hidden"))) std::vector<T> gather_elements(const std::vector<const T*>& elements) {
  std::vector<T> values;
  values.reserve(elements.size());
  for (const T* element : elements) values.push_back(*element);
  return values;
}
// The pages of all elements. False: they are more than a call may name, or on several servers.
template <typename C>
bool add_all(const C& container, const deref_scope& scope, page_runs* runs) {
  for (typename C::pieces rest(container); !rest.is_at_end();) {
    auto piece = rest.template next<false>(scope);
    if (!runs->add(piece.data(), piece.size_bytes())) return false;
  }
  return true;
}

inline bool runs_here(mode where) { return where == mode::local || (where == mode::automatic && !available()); }

}  // namespace detail

// How many elements there are for which matches(element, argument) is true.
template <chunked C, typename A>
result<size_t> count_if(const C& container, bool (*matches)(const typename C::value_type&, const A&),
                        const std::type_identity_t<A>& argument, mode where = mode::automatic) {
  using T = typename C::value_type;
  size_t count = 0;
  if (detail::runs_here(where)) {
    detail::for_each_piece(container, [&](std::span<const T> piece) {
      for (const T& element : piece) count += matches(element, argument);
      return true;
    });
    return {count, false};
  }
  return detail::call_in_steps(container, detail::count_step<T, A>, size_t{0}, matches, A(argument), where,
                               [](size_t, const auto&) { return true; });
}

// The index of the first element for which matches(element, argument) is true; size(): there is none. For the iterator:
// begin() + index, or nth(index) of a list.
template <chunked C, typename A>
result<size_t> find_if(const C& container, bool (*matches)(const typename C::value_type&, const A&),
                       const std::type_identity_t<A>& argument, mode where = mode::automatic) {
  using T = typename C::value_type;
  if (detail::runs_here(where)) {
    size_t before = 0;
    detail::for_each_piece(container, [&](std::span<const T> piece) {
      auto at = std::find_if(piece.begin(), piece.end(), [&](const T& element) { return matches(element, argument); });
      before += static_cast<size_t>(at - piece.begin());
      return at == piece.end();
    });
    return {before, false};
  }
  size_t searched = 0;
  return detail::call_in_steps(container, detail::find_step<T, A>, size_t{0}, matches, A(argument), where,
                               [&](size_t index, const auto& batch) {
                                 searched += batch.elements();
                                 return index == searched;
                               });
}

// add(add(initial, first element), second) and so on, in order.
template <chunked C, typename R>
result<R> reduce(const C& container, R initial, R (*add)(R, const typename C::value_type&),
                 mode where = mode::automatic) {
  using T = typename C::value_type;
  if (detail::runs_here(where)) {
    detail::for_each_piece(container, [&](std::span<const T> piece) {
      for (const T& element : piece) initial = add(initial, element);
      return true;
    });
    return {initial, false};
  }
  return detail::call_in_steps(container, detail::reduce_step<T, R>, initial, add, detail::no_argument(), where,
                               [](const R&, const auto&) { return true; });
}

// All elements, in order, to far memory that is not the container's. After an error what is there is undefined.
template <chunked C>
result<void> copy(const C& container, typename C::value_type* to, mode where = mode::automatic) {
  using T = typename C::value_type;
  if (detail::runs_here(where)) {
    detail::for_each_piece(container, [&](std::span<const T> piece) {
      to = std::copy(piece.begin(), piece.end(), to);
      return true;
    });
    return {true, false};
  }
  auto copy_batch = [&](bool, const detail::batch<T>& next) {
    T* first = std::exchange(to, to + next.elements());
    return call(detail::copy_pieces<T>, {first, next.pieces()}, next.ranges(), {{first, next.elements()}}, where);
  };
  return detail::call_for_each_batch<void>(container, true, copy_batch, [](bool, const auto&) { return true; });
}

// Sorts by <. Needs plain far memory for a copy of the elements, which is sorted where it lies; then the program reads
// it in order, and writes the container. After an error the container is unchanged. std::bad_alloc.
template <chunked C>
result<void> sort(C& container, mode where = mode::automatic) {
  using T = typename C::value_type;
  auto sorted = std::make_unique_for_overwrite<T[]>(container.size());
  auto copied = copy(container, sorted.get(), where);
  if (!copied) return copied;
  auto done = sort(sorted.get(), container.size(), where);
  if (!done) return done;
  container.for_each_mut([from = sorted.get()](T& element) mutable { element = *from++; });
  return {true, copied.on_server() && done.on_server()};
}

// The elements at these indexes of a vector or array, which are less than its size.
template <chunked C>
requires requires(const C& c, const deref_scope& scope) { c.locate(size_t{0}, scope); }
result<std::vector<typename C::value_type>> gather(const C& container, const std::vector<size_t>& indexes,
                                                   mode where = mode::automatic) {
  using T = typename C::value_type;
  std::vector<T> values;
  values.reserve(indexes.size());
  if (detail::runs_here(where)) {
    constexpr size_t kAhead = 64;
    for (size_t i = 0; i < indexes.size(); i++) {
      for (size_t next = i; i % kAhead == 0 && next < std::min(i + kAhead, indexes.size()); next++)
        container.prefetch(indexes[next], 1);
      values.push_back(container.load(indexes[i]));
    }
    return {std::move(values), false};
  }
  constexpr size_t kAtATime = FARSIDE_OFFLOAD_MAX_BYTES / 2 / std::max(sizeof(T), sizeof(T*));
  static_assert(kAtATime > 0, "the elements are too large for the result of a call");
  bool on_server = !indexes.empty();
  deref_scope scope;  // keeps the objects where they are until the calls have ended
  detail::page_runs all;
  bool names_all = indexes.size() > FARSIDE_OFFLOAD_MAX_RANGES && detail::add_all(container, scope, &all);
  for (size_t i = 0; i < indexes.size();) {
    std::vector<const T*> elements;
    detail::page_runs runs;
    for (; i < indexes.size() && elements.size() < kAtATime; i++) {
      const T* element = container.locate(indexes[i], scope);
      if (!names_all && !runs.add(element, sizeof(T))) break;
      elements.push_back(element);
    }
    auto part = call(detail::gather_elements<T>, elements, (names_all ? all : runs).ranges(), {}, where);
    if (!part) return part;
    on_server &= part.on_server();
    values.insert(values.end(), part->begin(), part->end());
  }
  return {std::move(values), on_server};
}

}  // namespace farside::offload
#endif
