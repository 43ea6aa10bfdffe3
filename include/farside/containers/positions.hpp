// Iterators of Farside's containers. One rule for all of them:
//
//   An iterator is a position and holds no scope: *it and it->member give a copy, it.get(scope) and it.get_mut(scope)
//   the element itself until the scope ends. A container's in(scope) and in_mut(scope) are ranges whose *it is the
//   element itself, until the scope ends.
//
//   for (uint64_t x : v) ...                                 // copies
//   for (uint64_t& x : v.in_mut(scope)) x++;                 // in place
//   std::ranges::sort(v.in_mut(scope));
//
// A long loop over much data rather uses for_each, which lets Farside move objects between chunks.
// Here: positions that are an index, random access. Cost: a position's copy opens a scope (2 ns); in a scope, a
// comparison an element.
#ifndef FARSIDE_CONTAINERS_POSITIONS_HPP
#define FARSIDE_CONTAINERS_POSITIONS_HPP

#include <farside/scope.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace farside::detail {

// What -> gives where there is only a copy.
template <typename T>
struct arrow {
  T value;
  const T* operator->() const { return &value; }
};

// The arithmetic of everything that is an index.
template <typename Self>
class index_arithmetic {
 public:
  using difference_type = std::ptrdiff_t;

  Self& operator++() { return *this += 1; }
  Self& operator--() { return *this += -1; }
  Self operator++(int) { return std::exchange(self(), self() + 1); }
  Self operator--(int) { return std::exchange(self(), self() - 1); }
  Self& operator+=(difference_type n) {
    index_ += static_cast<size_t>(n);
    return self();
  }
  Self& operator-=(difference_type n) { return *this += -n; }
  friend Self operator+(Self a, difference_type n) { return a += n; }
  friend Self operator+(difference_type n, Self a) { return a += n; }
  friend Self operator-(Self a, difference_type n) { return a -= n; }
  friend difference_type operator-(const Self& a, const Self& b) {
    return static_cast<difference_type>(a.index_ - b.index_);
  }
  friend bool operator==(const Self& a, const Self& b) { return a.index_ == b.index_; }
  friend auto operator<=>(const Self& a, const Self& b) { return a.index_ <=> b.index_; }
  decltype(auto) operator[](difference_type n) const { return *(static_cast<const Self&>(*this) + n); }

  size_t index() const { return index_; }

 protected:
  index_arithmetic() = default;
  explicit index_arithmetic(size_t index) : index_(index) {}
  size_t index_ = 0;

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

// A position in a container or a constant one. The container has load(i), get(i, scope) and get_mut(i, scope).
template <typename Container>
class position : public index_arithmetic<position<Container>> {
 public:
  using value_type = typename Container::value_type;
  using reference = value_type;
  using pointer = arrow<value_type>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::input_iterator_tag;

  position() = default;
  position(Container& container, size_t index) : index_arithmetic<position>(index), container_(&container) {}
  operator position<const Container>() const requires(!std::is_const_v<Container>) {
    return {*container_, this->index_};
  }

  value_type operator*() const { return container_->load(this->index_); }
  pointer operator->() const { return {**this}; }
  decltype(auto) get(const deref_scope& scope) const { return std::as_const(*container_).get(this->index_, scope); }
  decltype(auto) get_mut(const deref_scope& scope) const { return container_->get_mut(this->index_, scope); }

 private:
  Container* container_ = nullptr;
};

// A position in a scope: the elements themselves, for reading where the container is constant, for writing otherwise.
// Remembers the chunk. The container has run(i, &first), which gives the elements around i.
template <typename Container>
class scoped_position : public index_arithmetic<scoped_position<Container>> {
 public:
  using value_type = typename Container::value_type;
  using element = std::conditional_t<std::is_const_v<Container>, const value_type, value_type>;
  using reference = element&;
  using pointer = element*;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::random_access_iterator_tag;

  scoped_position() = default;
  scoped_position(Container& container, size_t index)
      : index_arithmetic<scoped_position>(index), container_(&container) {}

  reference operator*() const {
    if (this->index_ - first_ >= Container::kElementsPerObject || !run_) run_ = container_->run(this->index_, &first_);
    return run_[this->index_ - first_];
  }
  pointer operator->() const { return &**this; }

 private:
  Container* container_ = nullptr;
  mutable element* run_ = nullptr;
  mutable size_t first_ = 0;
};

// A container's elements in a scope.
template <typename Iterator>
class scoped_range {
 public:
  scoped_range(Iterator begin, Iterator end) : begin_(begin), end_(end) {}
  Iterator begin() const { return begin_; }
  Iterator end() const { return end_; }
  bool empty() const { return begin_ == end_; }
  size_t size() const requires std::random_access_iterator<Iterator> { return static_cast<size_t>(end_ - begin_); }
  decltype(auto) operator[](size_t i) const requires std::random_access_iterator<Iterator> {
    return begin_[static_cast<std::ptrdiff_t>(i)];
  }

 private:
  Iterator begin_, end_;
};

// The members that a container with iterators in both directions derives from its begin(), end() and size().
template <typename Self, typename Iterator, typename ConstIterator>
class reversible {
 public:
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using iterator = Iterator;
  using const_iterator = ConstIterator;
  using reverse_iterator = std::reverse_iterator<Iterator>;
  using const_reverse_iterator = std::reverse_iterator<ConstIterator>;

  [[nodiscard]] bool empty() const { return self().size() == 0; }
  const_iterator cbegin() const { return self().begin(); }
  const_iterator cend() const { return self().end(); }
  reverse_iterator rbegin() { return reverse_iterator(self().end()); }
  reverse_iterator rend() { return reverse_iterator(self().begin()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(self().end()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(self().begin()); }

  friend bool operator==(const Self& a, const Self& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }
};

}  // namespace farside::detail
#endif
