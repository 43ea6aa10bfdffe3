// The chunks of a farside::list and its iterators: see list.hpp. Not an interface for programs. Separate from list.hpp,
// because operations on chunks need not know where elements are in the list. Thread-safety: as std::list.
#ifndef FARSIDE_CONTAINERS_LIST_CHAIN_HPP
#define FARSIDE_CONTAINERS_LIST_CHAIN_HPP

#include <farside/containers/detail.hpp>
#include <farside/containers/positions.hpp>

#include <cstring>

namespace farside::detail {

// A thread's iteration over a list, recognized from its misses: the chunk that was missed last, and how many neighbours
// in turn before it.
struct traversal {
  const void* last = nullptr;
  int run = 0;  // negative: backwards
};
inline thread_local constinit traversal t_traversal{};

template <typename T, size_t count_>
class list_chain {
 public:
  static constexpr size_t kElements = count_;
  using value_type = T;
  using object = chunk<T, kElements>;
  struct node {
    node* previous = nullptr;
    node* next = nullptr;
    unique_ptr<object> items;
    uint32_t first = 0, count = 0;
    bool is_end() const { return count == 0; }
  };
  static_assert(sizeof(node) == 32);
  // Where an element is: `at` is its index in the chunk's items.
  struct place {
    node* n;
    uint32_t at;
  };

  list_chain() { end_.next = end_.previous = &end_; }
  list_chain(const list_chain&) = delete;
  list_chain& operator=(const list_chain&) = delete;

  node* end() const { return const_cast<node*>(&end_); }
  node* first() const { return end_.next; }
  node* last() const { return end_.previous; }
  void swap(list_chain& other) noexcept {
    std::swap(end_.next, other.end_.next);
    std::swap(end_.previous, other.end_.previous);
    close_ring(other);
    other.close_ring(*this);
  }

  template <bool write, bool non_temporal = false>
  static T* items(const node* n) {
    return reach<write, non_temporal>(n->items, [n] { missed(n); })->items;
  }
  void put(node* n, uint32_t at, const T& value) {
    deref_scope scope;
    ::new (static_cast<void*>(items<true>(n) + at)) T(value);
  }

  // Adds an empty chunk in front of a node. Its elements will begin or end at index `first`.
  node* add_before(node* next, size_t first) {
    auto fresh = std::make_unique<node>();
    make_in(fresh->items, 0);
    fresh->first = static_cast<uint32_t>(first);
    node* n = fresh.release();
    link(n, next->previous, next);
    return n;
  }
  // Returns the next node.
  node* remove(node* n) {
    node* next = n->next;
    n->previous->next = next;
    next->previous = n->previous;
    delete n;
    return next;
  }

  // Splits a full chunk into two of half its elements each. Returns the new place of an element.
  place split(node* n, uint32_t at) {
    if (n->count == 1) return {add_before(n, 0), 0};  // one element per chunk: a chunk for the new element
    uint32_t middle = n->first + n->count / 2;
    node* right = cut(n, middle);
    return at < middle ? place{n, at} : place{right, at - middle};
  }
  // Moves the elements from index `from` on to a new chunk, which is returned.
  node* cut(node* left, uint32_t from) {
    node* right = add_before(left->next, 0);
    deref_scope scope;
    right->count = left->first + left->count - from;
    left->count -= right->count;
    const T* source = items<false>(left) + from;
    move(items<true>(right), source, right->count);
    return right;
  }

  // Makes room for an element in front of an index, in a chunk that is not full. Returns the index of the room.
  uint32_t make_room(node* n, uint32_t at) {
    deref_scope scope;
    T* all = items<true>(n);
    uint32_t before = at - n->first, behind = n->count - before;
    bool room_behind = n->first + n->count < kElements;
    n->count++;
    if (n->first > 0 && (before < behind || !room_behind)) {
      move(all + n->first - 1, all + n->first, before);
      n->first--;
      return at - 1;
    }
    move(all + at + 1, all + at, behind);
    return at;
  }
  // Removes the element at an index. Returns the index of the next element.
  uint32_t close_gap(node* n, uint32_t at) {
    deref_scope scope;
    uint32_t before = at - n->first, behind = n->count - before - 1;
    n->count--;
    if (behind == 0) return at;
    if (before == 0) return ++n->first;
    T* all = items<true>(n);
    if (before < behind) {
      move(all + n->first + 1, all + n->first, before);
      n->first++;
      return at + 1;
    }
    move(all + at, all + at + 1, behind);
    return at;
  }
  // Appends the next chunk's elements if both chunks are at most a quarter full.
  void merge(node* n) {
    node* next = n->next;
    if (n->count > kElements / 4 || next->is_end() || next->count > kElements / 4) return;
    if (n->first + n->count + next->count > kElements) return;
    deref_scope scope;
    const T* source = items<false>(next) + next->first;
    move(items<true>(n) + n->first + n->count, source, next->count);
    n->count += next->count;
    remove(next);
  }
  // Removes the elements of a chunk for which f is true, and returns how many.
  template <typename F>
  size_t filter(node* n, F& f) {
    deref_scope scope;
    const T* from = items<false>(n) + n->first;
    uint32_t kept = 0;
    while (kept < n->count && !f(from[kept])) kept++;
    if (kept == n->count) return 0;
    T* to = items<true>(n) + n->first;
    for (uint32_t i = kept + 1; i < n->count; i++) {
      if (!f(from[i])) move(to + kept++, from + i, 1);
    }
    size_t gone = n->count - kept;
    n->count = kept;
    return gone;
  }
  // Moves all nodes of another chain in front of `where`.
  void adopt(node* where, list_chain& other) {
    node* front = other.first();
    node* back = other.last();
    if (front->is_end()) return;
    other.end_.next = other.end_.previous = &other.end_;
    front->previous = where->previous;
    back->next = where;
    where->previous->next = front;
    where->previous = back;
  }
  // The place of an index; past the chunk's end, the first place of the next chunk.
  static place normal(node* n, uint32_t at) {
    return at == n->first + n->count ? place{n->next, n->next->first} : place{n, at};
  }

  template <bool write, bool non_temporal, typename F>
  void visit(F f) const {
    for (node* n = first(); !n->is_end(); n = n->next) {
      deref_scope scope;
      T* all = items<write, non_temporal>(n) + n->first;
      for (uint32_t i = 0; i < n->count; i++) f(all[i]);
    }
  }

 private:
  static void link(node* n, node* previous, node* next) {
    n->previous = previous;
    n->next = next;
    previous->next = next->previous = n;
  }
  static void move(T* to, const T* from, size_t count) {
    memmove(static_cast<void*>(to), static_cast<const void*>(from), count * sizeof(T));
  }
  // After a swap: the neighbours of the other chain's end node become those of this one's.
  void close_ring(const list_chain& other) {
    if (end_.next == &other.end_) end_.next = end_.previous = &end_;
    end_.next->previous = end_.previous->next = &end_;
  }

  // Requests the chunks ahead if the last misses were neighbours: half of the depth at a time.
  [[gnu::noinline]] static void missed(const node* n) {
    constexpr int kBatch = static_cast<int>(depth_for(sizeof(object)) / 2);
    traversal& t = t_traversal;
    int run = t.last == n->previous ? std::max(t.run, 0) + 1 : t.last == n->next ? std::min(t.run, 0) - 1 : 0;
    t = {n, run};
    if (run == 0 || (std::abs(run) - 1) % kBatch != 0) return;
    int requested = std::abs(run) == 1 ? 0 : kBatch;
    auto step = [run](const node* from) { return run > 0 ? from->next : from->previous; };
    const node* at = step(n);
    for (int i = 0; i < 2 * kBatch && !at->is_end(); i++, at = step(at)) {
      if (i >= requested) farside::prefetch(&at->items, 1);
    }
  }

  node end_;
};

// An iterator of a list: a node, and an index in its chunk.
template <typename Chain, bool constant>
class list_position {
 public:
  using value_type = typename Chain::value_type;
  using reference = value_type;
  using pointer = arrow_proxy<value_type>;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::bidirectional_iterator_tag;
  using iterator_category = std::input_iterator_tag;
  using node = typename Chain::node;

  list_position() = default;
  list_position(typename Chain::place p) : node_(p.n), at_(p.at) {}
  operator list_position<Chain, true>() const requires(!constant) { return {{node_, at_}}; }
  value_type operator*() const {
    deref_scope scope;
    return get(scope);
  }
  pointer operator->() const { return {**this}; }
  const value_type& get(const deref_scope&) const { return Chain::template items<false>(node_)[at_]; }
  value_type& get_mut(const deref_scope&) const requires(!constant) { return Chain::template items<true>(node_)[at_]; }

  list_position& operator++() {
    if (++at_ == node_->first + node_->count) node_ = node_->next, at_ = node_->first;
    return *this;
  }
  list_position& operator--() {
    if (at_ == node_->first) node_ = node_->previous, at_ = node_->first + node_->count;
    at_--;
    return *this;
  }
  list_position operator++(int) { return std::exchange(*this, ++list_position(*this)); }
  list_position operator--(int) { return std::exchange(*this, --list_position(*this)); }
  friend bool operator==(const list_position& a, const list_position& b) {
    return a.node_ == b.node_ && a.at_ == b.at_;
  }

  // For the list and its scoped iterators only.
  typename Chain::place place() const { return {node_, at_}; }
  node* node_ = nullptr;
  uint32_t at_ = 0;
};

// An iterator whose * is the element itself, valid until the scope ends. Caches the address of its chunk.
template <typename Chain, bool constant>
class list_scoped_position {
 public:
  using value_type = typename Chain::value_type;
  using element = std::conditional_t<constant, const value_type, value_type>;
  using reference = element&;
  using pointer = element*;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::bidirectional_iterator_tag;

  list_scoped_position() = default;
  explicit list_scoped_position(list_position<Chain, constant> at) : at_(at) {}

  reference operator*() const {
    if (cached_ != at_.node_) {
      items_ = Chain::template items<!constant>(at_.node_);
      cached_ = at_.node_;
    }
    return items_[at_.at_];
  }
  pointer operator->() const { return &**this; }
  list_scoped_position& operator++() { return ++at_, *this; }
  list_scoped_position& operator--() { return --at_, *this; }
  list_scoped_position operator++(int) { return std::exchange(*this, ++list_scoped_position(*this)); }
  list_scoped_position operator--(int) { return std::exchange(*this, --list_scoped_position(*this)); }
  friend bool operator==(const list_scoped_position& a, const list_scoped_position& b) { return a.at_ == b.at_; }

 private:
  list_position<Chain, constant> at_;
  mutable const void* cached_ = nullptr;
  mutable element* items_ = nullptr;
};

}  // namespace farside::detail
#endif
