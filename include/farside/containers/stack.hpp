// farside::stack: as std::stack; the elements are far, in chunks (a farside::vector whose end is the top).
//
// A stack that is taken down is recognized, and the chunks below are asked for. Complexity: push, pop, top O(1), at
// most one fetch; pop fetches nothing. Thread-safety: as std::stack. Exceptions: std::bad_alloc from push and emplace,
// which then change nothing.
#ifndef FARSIDE_CONTAINERS_STACK_HPP
#define FARSIDE_CONTAINERS_STACK_HPP

#include <farside/containers/vector.hpp>

namespace farside {

template <typename T, size_t ElementsPerObject = 0>
class stack {
 public:
  using value_type = T;
  using size_type = size_t;

  size_t size() const { return elements_.size(); }
  [[nodiscard]] bool empty() const { return elements_.empty(); }
  void push(const T& value) { elements_.push_back(value); }
  template <typename... Arguments>
  void emplace(Arguments&&... arguments) {
    elements_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void pop() { elements_.pop_back(); }
  // A copy; with a scope, the element itself. There must be one.
  T top() const { return elements_.back(); }
  const T& top(const deref_scope& scope) const { return elements_.back(scope); }
  T& top_mut(const deref_scope& scope) { return elements_.get_mut(size() - 1, scope); }
  void clear() { elements_.clear(); }
  void swap(stack& other) noexcept { elements_.swap(other.elements_); }
  friend void swap(stack& a, stack& b) noexcept { a.swap(b); }

 private:
  vector<T, ElementsPerObject> elements_;
};

}  // namespace farside
#endif
