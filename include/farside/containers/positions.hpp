// The iterators of Farside's containers, and the members that follow from them. All containers have the same rule:
//
// An iterator is a position and holds no scope. *it and it->member are copies; it.get(scope) and it.get_mut(scope) are
// the element itself, valid until the scope ends. in(scope) and in_mut(scope) of a container are ranges whose *it is
// the element itself.
//
//   for (uint64_t x : v) sum += x;  // copies
//   farside::deref_scope scope;
//   for (uint64_t& x : v.in_mut(scope)) x++;  // in place
//   std::ranges::sort(v.in_mut(scope));
//
// Loops over much data should use for_each, which opens a new scope for each chunk, so that Farside can move objects.
// Thread-safety: as iterators of the standard library. Cost: a copy opens a scope (2 ns); an access in a scope costs
// one comparison more than a pointer. The classes here are for random access; hash_support.hpp and list_chain.hpp have
// others.
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

// The result of an iterator's -> : it holds a copy of the element.
template <typename T>
struct arrow_proxy {
  T value;
  const T* operator->() const { return &value; }
};

// The arithmetic of iterators that are an index.
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

// An iterator that is an index. Needs load(i), get(i, scope) and get_mut(i, scope) of the container, which may be
// const.
template <typename Container>
class position : public index_arithmetic<position<Container>> {
 public:
  using value_type = typename Container::value_type;
  using reference = value_type;
  using pointer = arrow_proxy<value_type>;
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

// An iterator whose * is the element itself, valid until the scope ends; for reading if the container is const, for
// writing otherwise. Caches the address of its chunk. Needs run(i, &first) of the container, which returns the chunk
// around i.
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

// What in(scope) and in_mut(scope) return.
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
