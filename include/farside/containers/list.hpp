// farside::list: as std::list, but unrolled: elements are in far chunks of up to ElementsPerObject, and a near node for
// each chunk holds the chunk's owner and links to its neighbours. C++20.
//
//   near:  node <-> node <-> node        each: owner, first, count
//            |        |       |
//   far:   chunk    chunk   chunk        elements in [first, first + count)
//
//   farside::list<uint64_t> numbers;
//   numbers.push_back(2);
//   numbers.insert(numbers.begin(), 1);
//   for (uint64_t n : numbers) printf("%lu\n", n);  // copies
//
// T is trivially copyable. insert and erase invalidate iterators into the chunk that they change, and into the next one
// if the two are merged; they return a valid iterator. push and pop at the ends invalidate only iterators to removed
// elements. Complexity: push, pop and size O(1); insert and erase O(1) in the number of elements (they move up to half
// a chunk, and fetch it and a neighbour at most); splice of a whole list O(1) except for one chunk. clear and
// destruction fetch nothing. Iteration in both directions is detected from its misses, and the chunks ahead are
// requested. Near memory: 32 bytes for each chunk. Exceptions: std::bad_alloc from insertions, which then have no
// effect. Thread-safety: as std::list. Iterators: positions.hpp, bidirectional. Guide: docs/guide/containers.md.
#ifndef FARSIDE_CONTAINERS_LIST_HPP
#define FARSIDE_CONTAINERS_LIST_HPP

#include <farside/containers/detail.hpp>
#include <farside/containers/list_chain.hpp>
#include <farside/containers/positions.hpp>

#include <initializer_list>
#include <span>

namespace farside {

namespace detail {
template <typename T, size_t ElementsPerObject>
using list_chain_of = list_chain<T, elements_of<T, ElementsPerObject>>;
}

template <typename T, size_t ElementsPerObject = 0>
class list : public detail::reversible<list<T, ElementsPerObject>,
                                       detail::list_position<detail::list_chain_of<T, ElementsPerObject>, false>,
                                       detail::list_position<detail::list_chain_of<T, ElementsPerObject>, true>> {
  static_assert(detail::check_element<T>());
  using chain = detail::list_chain_of<T, ElementsPerObject>;
  using node = typename chain::node;

 public:
  using value_type = T;
  static constexpr size_t kElementsPerObject = chain::kElements;
  using iterator = detail::list_position<chain, false>;
  using const_iterator = detail::list_position<chain, true>;

  list() = default;
  list(std::initializer_list<T> values) : list(values.begin(), values.end()) {}
  template <std::input_iterator It>
  list(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  list(list&& other) noexcept { swap(other); }
  list& operator=(list&& other) noexcept {
    if (this == &other) return *this;
    clear();
    swap(other);
    return *this;
  }
  ~list() { clear(); }

  size_t size() const { return size_; }
  iterator begin() { return typename chain::place{chain_.first(), chain_.first()->first}; }
  iterator end() { return typename chain::place{chain_.end(), 0}; }
  const_iterator begin() const { return const_cast<list*>(this)->begin(); }
  const_iterator end() const { return const_cast<list*>(this)->end(); }
  auto in(const deref_scope&) const {
    using scoped = detail::list_scoped_position<chain, true>;
    return detail::scoped_range<scoped>(scoped(begin()), scoped(end()));
  }
  auto in_mut(const deref_scope&) {
    using scoped = detail::list_scoped_position<chain, false>;
    return detail::scoped_range<scoped>(scoped(begin()), scoped(end()));
  }

  // Walks over the elements in pieces that are adjacent in memory. Valid while the list is not changed.
  class pieces {
   public:
    explicit pieces(const list& of) : at_(of.chain_.first()) {}
    bool is_at_end() const { return at_->is_end(); }
    // The next piece, valid until the scope ends. fetched: it is used at once; else nothing is fetched as a rule.
    template <bool fetched>
    std::span<const T> next(const deref_scope&) {
      const node* n = std::exchange(at_, at_->next);
      const T* items = fetched ? chain::template items<false>(n) : detail::locate(n->items)->items;
      return {items + n->first, n->count};
    }

   private:
    const node* at_;
  };
  // The element with this index; end() if there is none. O(chunks), fetches nothing.
  const_iterator nth(size_t index) const {
    node* n = chain_.first();
    for (; !n->is_end() && index >= n->count; n = n->next) index -= n->count;
    return typename chain::place{n, n->is_end() ? 0 : n->first + static_cast<uint32_t>(index)};
  }

  // Copies; with a scope, the element itself. The list must not be empty.
  T front() const { return *begin(); }
  T back() const { return *--end(); }
  const T& front(const deref_scope& scope) const { return begin().get(scope); }
  const T& back(const deref_scope& scope) const { return (--end()).get(scope); }

  void push_back(const T& value) { emplace_back(value); }
  void push_front(const T& value) { emplace_front(value); }
  template <typename... Arguments>
  void emplace_back(Arguments&&... arguments) {
    T value(std::forward<Arguments>(arguments)...);
    node* n = chain_.last();
    if (n == chain_.end() || n->first + n->count == kElementsPerObject) n = chain_.add_before(chain_.end(), 0);
    chain_.put(n, n->first + n->count, value);
    n->count++, size_++;
  }
  template <typename... Arguments>
  void emplace_front(Arguments&&... arguments) {
    T value(std::forward<Arguments>(arguments)...);
    node* n = chain_.first();
    if (n == chain_.end() || n->first == 0) n = chain_.add_before(n, kElementsPerObject);
    chain_.put(n, n->first - 1, value);
    n->first--, n->count++, size_++;
  }
  void pop_back() {
    node* n = chain_.last();
    size_--;
    if (--n->count == 0) chain_.remove(n);
  }
  void pop_front() {
    node* n = chain_.first();
    size_--, n->first++;
    if (--n->count == 0) chain_.remove(n);
  }

  // Inserts in front of `where`.
  template <typename... Arguments>
  iterator emplace(const_iterator where, Arguments&&... arguments) {
    T value(std::forward<Arguments>(arguments)...);
    node* n = where.node_;
    uint32_t at = where.at_;
    if (n == chain_.end()) {
      push_back(value);
      return --end();
    }
    if (n->count == kElementsPerObject) {
      auto [part, place] = chain_.split(n, at);
      n = part, at = place;
    }
    at = chain_.make_room(n, at);
    chain_.put(n, at, value);
    size_++;
    return typename chain::place{n, at};
  }
  iterator insert(const_iterator where, const T& value) { return emplace(where, value); }
  template <std::input_iterator It>
  iterator insert(const_iterator where, It first, It last) {
    size_t count = 0;
    iterator at = where.place();
    for (; first != last; ++first, ++at, count++) at = emplace(at, *first);
    for (; count > 0; count--) --at;
    return at;
  }
  iterator erase(const_iterator where) {
    node* n = where.node_;
    size_--;
    if (n->count == 1) {
      node* next = chain_.remove(n);
      return typename chain::place{next, next->first};
    }
    uint32_t at = chain_.close_gap(n, where.at_);
    chain_.merge(n);
    return chain_.normal(n, at);
  }
  iterator erase(const_iterator first, const_iterator last) {
    size_t count = 0;
    for (const_iterator i = first; i != last; ++i) count++;
    iterator at = first.place();
    for (; count > 0; count--) at = erase(at);
    return at;
  }
  // Removes the elements for which f(const T&) is true, and returns how many. O(size), one pass.
  template <typename F>
  size_t remove_if(F f) {
    size_t before = size_;
    for (node* n = chain_.first(); n != chain_.end();) {
      size_ -= chain_.filter(n, f);
      n = n->count == 0 ? chain_.remove(n) : n->next;
    }
    return before - size_;
  }
  // Moves all elements of another list in front of `where`.
  void splice(const_iterator where, list& other) {
    node* n = where.node_;
    if (n != chain_.end() && where.at_ != n->first) n = chain_.cut(n, where.at_);
    chain_.adopt(n, other.chain_);
    size_ += std::exchange(other.size_, 0);
  }
  void splice(const_iterator where, list&& other) { splice(where, other); }
  void clear() {
    while (chain_.first() != chain_.end()) chain_.remove(chain_.first());
    size_ = 0;
  }
  void swap(list& other) noexcept {
    chain_.swap(other.chain_);
    std::swap(size_, other.size_);
  }
  friend void swap(list& a, list& b) noexcept { a.swap(b); }

  // f(const T&) or f(T&) for each element: one scope and one deref for each chunk. f must not add or remove elements.
  template <bool non_temporal = false, typename F>
  void for_each(F f) const {
    chain_.template visit<false, non_temporal>([&](const T& item) { f(item); });
  }
  template <bool non_temporal = false, typename F>
  void for_each_mut(F f) {
    chain_.template visit<true, non_temporal>([&](T& item) { f(item); });
  }

 private:
  chain chain_;
  size_t size_ = 0;
};

}  // namespace farside
#endif
